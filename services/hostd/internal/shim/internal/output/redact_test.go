package output

import (
	"os"
	"runtime"
	"testing"

	"github.com/millrace/millrace/events/process"
	"github.com/millrace/millrace/events/redact"
	"github.com/millrace/millrace/services/hostd/internal/wire"
)

// A secret that is written in two pieces never gets into a record, whose offsets are those of what it
// has.
func TestOutputIsRedactedAcrossWrites(t *testing.T) {
	set, err := redact.Compile([]string{"hunter[0-9]+"})
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name   string
		pieces []string
		want   string
	}{
		{"a match in two writes", []string{"a hun", "ter2 b\n"}, "a [redacted] b\n"},
		{"a match at the end", []string{"a hunter", "2"}, "a [redacted]"},
		{"the beginning of a match at the end", []string{"a hun"}, "a hun"},
		{"no match", []string{"a", "b\n"}, "ab\n"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			in, out, err := os.Pipe()
			if err != nil {
				t.Fatal(err)
			}
			rc, err := in.SyscallConn()
			if err != nil {
				t.Fatal(err)
			}
			fd := -1
			if err := rc.Control(func(n uintptr) { fd = int(n) }); err != nil {
				t.Fatal(err)
			}
			b := New(Config{})
			r := b.NewRecord("")
			r.Restrict(set, true)
			st := r.NewStream(End{ID: process.Stdout, F: in, RC: rc, FD: fd}, new(drained))
			done := make(chan struct{})
			go func() { defer close(done); st.Run() }()
			for _, piece := range tt.pieces {
				if _, err := out.WriteString(piece); err != nil {
					t.Fatal(err)
				}
				for n := 1; n > 0; { // the piece is read alone
					if n, err = unreadBytes(fd); err != nil {
						t.Fatal(err)
					}
					runtime.Gosched()
				}
			}
			out.Close()
			<-done
			got := ""
			for _, e := range r.spool.entries[r.spool.head:] {
				if e.stream != 0 && e.offset != uint64(len(got)) {
					t.Errorf("offset %d after %d bytes", e.offset, len(got))
				}
				got += string(e.data)
			}
			if got != tt.want || r.offsets[process.Stdout] != uint64(len(got)) {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

// The end of a process whose output another one still has open records what is held back.
func TestTheEndRecordsWhatIsHeldBack(t *testing.T) {
	b := New(Config{})
	r := b.NewRecord("")
	r.held[process.Stdout] = []byte("hun")
	r.Finish(process.Exit{})
	e := r.spool.entries[r.spool.head:]
	if len(e) != 2 || string(e[0].data) != "hun" || e[1].stream != 0 {
		t.Errorf("got %d events", len(e))
	}
}

// Output that is not kept does not go to the disk either: its process waits instead.
func TestOutputThatIsNotKeptStaysInMemory(t *testing.T) {
	b := New(Config{})
	b.disk = &disk{}
	b.SetLimits(wire.Limits{SpoolProcess: 1 << 20, SpoolTotal: 1 << 20, Disk: 8 << 20})
	r := b.NewRecord("")
	r.Restrict(nil, true)
	r.spool.unsentBytes = 1 << 20
	r.spill()
	if b.disk.live != 0 {
		t.Error("output was written to the disk")
	}
	r.spool.unsentBytes, b.bytes = 0, 1<<20
	if b.hasSpace(r) {
		t.Error("the process does not wait")
	}
}
