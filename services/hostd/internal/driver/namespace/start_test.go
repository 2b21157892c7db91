//go:build linux

package namespace

import (
	"errors"
	"os"
	"testing"
)

// A launcher that was killed when it had forked has told of nothing, and its child has
// the pipe: nobody waits for each other.
func TestALauncherThatEndsEarly(t *testing.T) {
	ours, childs, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer ours.Close()
	defer childs.Close()
	if _, err := launched(ours); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("got %v", err)
	}
}
