package output

import (
	"os"
	"testing"

	"github.com/millrace/millrace/events/process"
	"github.com/millrace/millrace/services/hostd/internal/wire"
)

// drained is an owner that counts the calls of Drained.
type drained int

func (d *drained) Drained()       { *d++ }
func (d *drained) EOF(bool)       {}
func (*drained) Closing(*os.File) {}

// TestExitWithoutOutputNeedsNoSpoolSpace: the spool may be full of other processes' output.
func TestExitWithoutOutputNeedsNoSpoolSpace(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer w.Close() // a child has it open
	b := New(Config{})
	b.SetLimits(wire.Limits{SpoolProcess: 1, SpoolTotal: 1})
	b.bytes = 2
	end := End{ID: process.Stdout, F: r, FD: int(r.Fd())}
	var first, second drained
	b.NewRecord("").NewStream(end, &first).ProcessExited()
	if first != 1 {
		t.Error("it waits for space in the spool")
	}
	if _, err := w.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	b.NewRecord("").NewStream(end, &second).ProcessExited()
	if second != 0 {
		t.Error("remaining output was skipped")
	}
}
