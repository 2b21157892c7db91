package e2e_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/millrace/millrace/e2e/rig"
)

const (
	protocolFile    = "services/hostd/internal/wire/doc.go" // has the version of the protocol between hostd and shim
	protocolVersion = 8                                     // current version
)

// withProtocolVersion returns the current program with another protocol version.
func withProtocolVersion(version int) func(*testing.T) string {
	return func(t *testing.T) string {
		line := "const Version = %d\n"
		return rig.Changed(t, protocolFile, fmt.Sprintf(line, protocolVersion), fmt.Sprintf(line, version))
	}
}

// oldest returns an early commit that has the driver. It supports only the protocol version
// of its own shims.
func oldest(t *testing.T) string {
	if kernelOfItsOwn(t) {
		return "79526f4" // version 2
	}
	return "9f4be7f" // version 1
}

// A hostd of another version is killed, and the current one takes over its shims; then that
// is killed, and the other version takes over the shims of both. Processes lose nothing,
// also on terminals. Covers T-127 and T-128.
func TestFaultUpgrade(t *testing.T) {
	for _, tt := range []struct {
		name  string
		other func(*testing.T) string
		back  bool
	}{
		{"an older protocol version", withProtocolVersion(protocolVersion - 1), true},
		{"a newer protocol version", withProtocolVersion(protocolVersion + 1), true},
		{"an earlier commit", func(t *testing.T) string { return rig.AtCommit(t, oldest(t)) }, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			other := tt.other(t)
			u := rig.NewUp(t, rig.Options{Binary: other})
			c := newCrowd(t)
			all := counting(t, u, c)
			c.progress(t, 50)
			must(t, u.SwitchBinary(rig.Binary(t)))
			c.progress(t, 50)
			all = append(all, counting(t, u, c)...)
			u.Kill9() // the second time both support the version
			must(t, u.Restart())
			c.progress(t, 50)
			if tt.back {
				must(t, u.SwitchBinary(other))
				c.progress(t, 50)
				all = append(all, counting(t, u, c)...)
				c.progress(t, 50) // a terminal whose program has not started would echo the input
			}
			for _, p := range all {
				stopCounter(t, []*rig.API{u.API}, p.box, p.pid, p.stream)
			}
			c.finish(t, counterCode)
			checkPauses(t, c)
		})
	}
}

// counting starts counters in two sandboxes, some of them on terminals, with a crowd as
// readers.
func counting(t *testing.T, u *rig.Up, c *crowd) (all []running) {
	t.Helper()
	for range 2 {
		box := u.Create(t).ID
		for i := range 5 {
			one, spec := running{box: box, stream: "stdin"}, counter{every: 5 * time.Millisecond}.spec()
			if i == 1 {
				one.stream, spec = "pty", counter{every: 5 * time.Millisecond}.terminal()
			}
			one.id, one.pid = launch(t, u.API, box, spec)
			c.watch([]*rig.API{u.API}, box, one.id, 0, "events")
			all = append(all, one)
		}
	}
	return all
}
