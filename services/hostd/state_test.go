package hostd

import (
	"errors"
	"os"
	"syscall"
	"testing"

	"github.com/millrace/millrace/events/kind"
)

// Clients receive the reason of a failed create, but no internals.
func TestFailureMessages(t *testing.T) {
	for want, err := range map[string]error{
		"the sandbox ended by itself":            nil,
		"the disk of the sandbox's host is full": kind.Wrap(kind.Unavailable, "create sandbox", "s", &os.PathError{Op: "mkdir", Path: "/secret", Err: syscall.ENOSPC}),
		"internal":                               errors.New("a secret"),
	} {
		if got := failureMessage(err); got != want {
			t.Errorf("failureMessage(%v) = %q, want %q", err, got, want)
		}
	}
}

func TestConfig(t *testing.T) {
	for _, cfg := range []Config{{}, {Name: "h", DataDir: "d"}} {
		if err := setDefaults(&cfg); !kind.Is(err, kind.Invalid) {
			t.Errorf("%+v: %v", cfg, err)
		}
	}
}
