package shim

import (
	"os"
	"testing"
	"time"

	"github.com/millrace/millrace/events/process"
)

// TestSilenceCountsOnlyWhileOutputCanBeRead: the record of an exited process ends after
// silence on its pipes, but not if the spool was full or the sandbox paused for that time.
func TestSilenceCountsOnlyWhileOutputCanBeRead(t *testing.T) {
	const long = time.Hour
	for _, tt := range []struct {
		name         string
		wrote        time.Duration // time ago, as all of these
		ready, check time.Duration
		ends         bool
	}{
		{"no output", long, long, 0, true},
		{"recent output after GraceMax", 0, long, 0, true}, // Limits.GraceMax has passed
		{"the spool has space again, but nothing was read yet", long, 0, 0, false},
		{"the spool had space again, and no output came", long, 4 * time.Second, 0, true},
		{"paused", long, long, long, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			ago := func(d time.Duration) time.Time { return time.Now().Add(-d) }
			s := New(Config{})
			s.limits.Grace, s.limits.GraceMax = 2*time.Second, 10*time.Second
			p := &proc{s: s, exited: true, exitedAt: ago(long), wroteAt: ago(tt.wrote), readyAt: ago(tt.ready), silenceCheckAt: ago(tt.check)}
			p.timer = time.AfterFunc(long, func() {})
			defer p.timer.Stop()
			p.checkSilence()
			if p.finished != tt.ends {
				t.Errorf("ended: %t", p.finished)
			}
		})
	}
}

// TestExitWithoutOutputNeedsNoSpoolSpace: the spool may be full of other processes' output.
func TestExitWithoutOutputNeedsNoSpoolSpace(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer w.Close() // a child has it open
	s := New(Config{})
	s.limits.SpoolProcess, s.limits.SpoolTotal, s.bytes = 1, 1, 2
	p := &proc{s: s, open: 1, undrained: 1}
	st := &stream{p: p, id: process.Stdout, f: r, fd: int(r.Fd())}
	p.streams = []*stream{st}
	st.processExited()
	if !st.drained || p.undrained != 0 {
		t.Error("it waits for space in the spool")
	}
	if _, err := w.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	other := &stream{p: &proc{s: s, undrained: 1}, id: process.Stdout, f: r, fd: int(r.Fd())}
	if other.processExited(); other.drained {
		t.Error("remaining output was skipped")
	}
}
