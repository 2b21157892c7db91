//go:build linux

package gvisor

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

// A sandbox whose shim does not respond is destroyed at once, and a pending Dial returns.
func TestDestroyWaitsForNoDial(t *testing.T) {
	_, s, in := shellIn(t, "sleep 1000")
	dialed, err := os.OpenFile(filepath.Join(s.Dir, workDir, toShim), os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	ended, destroyed := make(chan error, 1), make(chan error, 1)
	go func() {
		_, err := in.Dial(t.Context())
		ended <- err
	}()
	if _, err := dialed.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	dialed.Close()
	go func() { destroyed <- in.Destroy(t.Context()) }()
	late := time.After(20 * time.Second)
	select {
	case err := <-destroyed:
		if err != nil {
			t.Error(err)
		}
	case <-late:
		t.Fatal("Destroy waits for Dial")
	}
	select {
	case err := <-ended:
		if err == nil {
			t.Error("a shell responded as a shim")
		}
	case <-late:
		t.Error("Dial did not return")
	}
}
