package app

import (
	"io"
	"os"
	"testing"

	"github.com/spf13/pflag"

	"github.com/millrace/millrace/internal/cli/command"
)

// An exec-server has the defaults of up's settings, of which it has few flags.
func TestExecServerHasTheDefaultsOfUp(t *testing.T) {
	cfg := &command.Config{Out: io.Discard, Err: io.Discard, LookupEnv: os.LookupEnv}
	s, u := &execServer{up: up{cfg: cfg}}, &up{cfg: cfg}
	own := pflag.NewFlagSet("", pflag.ContinueOnError)
	s.flags(own)
	u.flags(pflag.NewFlagSet("", pflag.ContinueOnError))
	if _, err := s.users.config(nil); err != nil {
		t.Error(err)
	}
	if s.grace != u.grace || s.durability != u.durability {
		t.Errorf("grace %v, durability %q; want %v, %q", s.grace, s.durability, u.grace, u.durability)
	}
	for _, name := range []string{"listen", "driver", "log-level"} {
		if own.Lookup(name) == nil {
			t.Errorf("no --%s", name)
		}
	}
	if own.Lookup("sign-up-rate") != nil || own.Lookup("master-key-file") != nil {
		t.Error("flags of a server with users")
	}
}
