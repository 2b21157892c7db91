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

// shellIn makes a sandbox with a shell in place of the shim.
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

// After a kill of hostd at any point of a stop or start, the next run determines whether the
// sandbox is stopped: gVisor would die of an excess start.
func TestInterruptedPauseIsDetermined(t *testing.T) {
	d, s, in := shellIn(t, "sleep 1000")
	defer in.Destroy(t.Context())
	for _, stand := range []bool{true, false, true} {
		do := in.Resume
		if stand {
			do = in.Pause
		}
		if err := do(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(s.Dir, workDir, pauseFile), []byte(changing), 0o600); err != nil {
			t.Fatal(err)
		}
		var err error
		if in, err = d.Attach(t.Context(), s); err != nil {
			t.Fatal(err)
		}
		if got, err := in.(*instance).Freezer.Frozen(); got != stand || err != nil {
			t.Errorf("frozen: %v, %v; want %v", got, err, stand)
		}
	}
	if err := in.Resume(t.Context()); err != nil {
		t.Fatal(err)
	}
	select {
	case <-in.Done():
		t.Error("the sandbox ended")
	default:
	}
}

// A sandbox that ends by itself does so at once, although hostd keeps a control
// connection: gVisor would otherwise wait for its client.
func TestSandboxEndsDespiteControlConnection(t *testing.T) {
	_, s, in := shellIn(t, "read line")
	defer in.Destroy(t.Context())
	for _, do := range []func(context.Context) error{in.Pause, in.Resume} {
		if err := do(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if len(in.(*instance).control.idle) == 0 {
		t.Error("no connection is kept")
	}
	if err := os.WriteFile(filepath.Join(s.Dir, workDir, toShim), []byte("end\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	select {
	case <-in.Done():
	case <-time.After(time.Minute):
		t.Error("the sandbox does not end")
	}
}
