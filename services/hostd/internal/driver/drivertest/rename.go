//go:build linux

package drivertest

import (
	"strings"
	"testing"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/services/hostd/internal/driver"
)

// testRename: a warm instance gets the host name of its sandbox. gVisor does not support that.
func (s *suite) testRename(caps driver.Caps) func(*testing.T) {
	return func(t *testing.T) {
		b := s.create(t, nil)
		r, ok := b.Instance.(driver.Renamer)
		if !ok {
			t.Skip("its driver does not support it")
		}
		const name = "another-name"
		if err := r.Rename(name); kind.Is(err, kind.Unimplemented) {
			if caps.WarmMiB > 0 && caps.Isolation == "process" {
				t.Error(err)
			}
			return
		} else if err != nil {
			t.Fatal(err)
		}
		want := strings.Repeat(name+"\n", 2) + "127.0.1.1 " + name
		if got := b.sh(t, "hostname; cat /etc/hostname; grep 127.0.1.1 /etc/hosts"); got != want {
			t.Errorf("%q, want %q", got, want)
		}
		if got := b.sh(t, "ls -ln /etc/hosts | cut -d' ' -f1,3,4"); got != b.sh(t, "ls -ln /etc/resolv.conf | cut -d' ' -f1,3,4") {
			t.Errorf("owner and mode %q", got)
		}
	}
}
