//go:build linux

package gvisor

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/services/hostd/internal/driver"
)

// shellIn makes a sandbox with a shell in the shim's place.
func shellIn(t *testing.T, script string) (driver.Driver, driver.Spec, driver.Instance) {
	t.Helper()
	d := newDriver(t)
	s := driver.Spec{ID: sandbox.NewID(), Dir: t.TempDir(), ShimPath: "/bin/sh", ShimArgs: []string{"-c", script}}
	if _, err := d.Probe(t.Context()); err != nil {
		t.Skip(err)
	}
	in, err := d.Create(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	return d, s, in
}

// Wherever hostd is killed while it stops or starts a sandbox, the next one finds
// out whether it stands: gVisor would die of a start too many.
func TestCutOffWhileItIsStopped(t *testing.T) {
	d, s, in := shellIn(t, "sleep 1000")
	defer in.Destroy(t.Context()) //nolint:errcheck // the last look says more
	for _, stand := range []bool{true, false, true} {
		do := in.Resume
		if stand {
			do = in.Pause
		}
		if err := do(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(s.Dir, workDir, stillFile), []byte(moves), 0o600); err != nil {
			t.Fatal(err)
		}
		var err error
		if in, err = d.Attach(t.Context(), s); err != nil {
			t.Fatal(err)
		}
		if got, err := in.(*box).Brake.Frozen(); got != stand || err != nil {
			t.Errorf("it stands: %v, %v; want %v", got, err, stand)
		}
	}
	if err := in.Resume(t.Context()); err != nil {
		t.Fatal(err)
	}
	select {
	case <-in.Done():
		t.Error("it died")
	default:
	}
}

// A sandbox that was asked something, and ends by itself, is gone at once: gVisor
// would else wait for who might ask more.
func TestItEndsWhoeverMayAskMore(t *testing.T) {
	_, s, in := shellIn(t, "read line")
	defer in.Destroy(t.Context()) //nolint:errcheck // the last look says more
	for _, do := range []func(context.Context) error{in.Pause, in.Resume} {
		if err := do(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if len(in.(*box).control.idle) == 0 {
		t.Error("no connection is kept")
	}
	if err := os.WriteFile(filepath.Join(s.Dir, workDir, toShim), []byte("end\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	select {
	case <-in.Done():
	case <-time.After(10 * time.Second):
		t.Error("it does not end")
	}
}
