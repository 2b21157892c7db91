package shim

import (
	"os"
	"testing"
	"time"

	"github.com/millrace/millrace/events/process"
)

// A record ends when those who hold its output say nothing, and could have: not because
// there was no room for so long, nor because the sandbox stood still.
func TestLullIsOfWhoCouldSpeak(t *testing.T) {
	const long = time.Hour
	for _, tt := range []struct {
		name        string
		wrote       time.Duration // ago, as all of these
		ready, look time.Duration
		ends        bool
	}{
		{"nothing came", long, long, 0, true},
		{"it wrote just now, and not for long", 0, long, 0, true}, // Limits.GraceMax is over
		{"there is room again, and it was not read yet", long, 0, 0, false},
		{"there was room again, and nothing came", long, 4 * time.Second, 0, true},
		{"it stood still", long, long, long, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			ago := func(d time.Duration) time.Time { return time.Now().Add(-d) }
			s := New(Config{})
			s.limits.Grace, s.limits.GraceMax = 2*time.Second, 10*time.Second
			p := &proc{s: s, exited: true, exitedAt: ago(long), wroteAt: ago(tt.wrote), readyAt: ago(tt.ready), lullAt: ago(tt.look)}
			p.timer = time.AfterFunc(long, func() {})
			defer p.timer.Stop()
			p.lull()
			if p.finished != tt.ends {
				t.Errorf("ended: %t", p.finished)
			}
		})
	}
}

// An exit of who left nothing to read needs no room in the spool, which others may fill.
func TestSilentExitNeedsNoRoom(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer w.Close() // its children hold it
	s := New(Config{})
	s.limits.SpoolProcess, s.limits.SpoolTotal, s.bytes = 1, 1, 2
	p := &proc{s: s, open: 1, undrained: 1}
	st := &stream{p: p, id: process.Stdout, f: r, fd: int(r.Fd())}
	p.streams = []*stream{st}
	st.exit()
	if !st.drained || p.undrained != 0 {
		t.Error("it waits for room")
	}
	if _, err := w.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	other := &stream{p: &proc{s: s, undrained: 1}, id: process.Stdout, f: r, fd: int(r.Fd())}
	if other.exit(); other.drained {
		t.Error("what was left is passed over")
	}
}
