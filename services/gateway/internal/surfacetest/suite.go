package surfacetest

import (
	"bytes"
	"context"
	"math/rand/v2"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/process"
	"github.com/millrace/millrace/services/gateway/internal/stream"
)

// Run tests a surface against the contract.
func Run(t *testing.T, s Surface) {
	t.Helper()
	t.Run("each byte once and in order, the exit once and last", s.wholeRecords)
	t.Run("a client resumes at any position and misses nothing", s.everyPosition)
	t.Run("an exit that was not observed is not sent", s.unseen)
	t.Run("a process that never ran is an error", s.failed)
	t.Run("a gap is reported", s.gap)
	t.Run("an idle stream sends keepalives and delays nothing", s.silence)
	t.Run("a drain returns a position", s.drain)
	t.Run("a stalled reader occupies one batch", s.stalled)
	t.Run("a line without an end is not buffered", s.endless)
}

func (s *Surface) wholeRecords(t *testing.T) {
	for _, r := range Records() {
		t.Run(r.Name, func(t *testing.T) {
			for _, batch := range []int{0, 1, 3} {
				s.check(t, r, s.read(t, r, "", batch))
			}
		})
	}
}

// check compares what a client has received of a whole record with the record.
func (s *Surface) check(t *testing.T, r *Record, units []Unit) {
	t.Helper()
	for _, st := range []process.Stream{process.Stdout, process.Stderr, process.PTY} {
		if got, want := output(units, st), s.want(r.Output(st)); !bytes.Equal(got, want) {
			t.Errorf("%v: got %q, want %q", st, abridge(got), abridge(want))
		}
	}
	starts, ends := 0, 0
	for i := range units {
		switch units[i].What {
		case Start:
			starts++
		case End:
			ends++
			if i != len(units)-2 {
				t.Errorf("the exit is unit %d of %d, want the second to last", i+1, len(units))
			}
			if got, want := units[i].Code, wantCode(r); got != want {
				t.Errorf("exit code %d, want %d", got, want)
			}
		case Last:
			if i != len(units)-1 || units[i].Err != "" {
				t.Errorf("unit %d of %d is the end of the stream, with error %q", i+1, len(units), units[i].Err)
			}
		default:
		}
	}
	if s.Exits && (starts != 1 || ends != 1) {
		t.Errorf("%d starts and %d exits, want one of each", starts, ends)
	}
	if n := len(units); n == 0 || units[n-1].What != Last {
		t.Errorf("the stream has no end unit")
	}
}

func abridge(b []byte) []byte {
	if len(b) > 300 {
		return append(append([]byte{}, b[:300]...), "..."...)
	}
	return b
}

func wantCode(r *Record) int {
	x := r.Events[len(r.Events)-1].Body.(process.Finished).Exit
	if x.Code == nil {
		return -1
	}
	return int(*x.Code)
}

// everyPosition disconnects the client after each unit and resumes.
func (s *Surface) everyPosition(t *testing.T) {
	for _, r := range Records() {
		t.Run(r.Name, func(t *testing.T) {
			for _, batch := range []int{0, 2} {
				first := s.read(t, r, "", batch)
				for n := range first[:len(first)-1] {
					s.check(t, r, s.resume(t, r, first[:n+1]))
				}
			}
		})
	}
}

// resume returns what a client has received that disconnected after the given units and
// resumed, without the second start.
func (s *Surface) resume(t *testing.T, r *Record, had []Unit) []Unit {
	t.Helper()
	position, started, ended := "", false, false
	for i := range had {
		if had[i].Position != "" {
			position = had[i].Position
		}
		started = started || had[i].What == Start
		ended = ended || had[i].What == End
	}
	units := append([]Unit{}, had...)
	for _, u := range s.read(t, r, position, 0) {
		if u.What == Start && started {
			continue
		}
		units = append(units, u)
	}
	return units
}

// unseen tests exits that were not observed.
func (s *Surface) unseen(t *testing.T) {
	spec := process.Spec{Cmd: "x"}
	for _, r := range []*Record{
		NewRecord("host lost", spec, Out("a\nb"), process.Lost{Reason: "its host fell silent"}, Unseen(process.CauseHostLost)),
		NewRecord("shim lost", spec, Out("a\nb"), Unseen(process.CauseShimLost)),
		NewRecord("sandbox gone", spec, Out("a\nb"), Unseen(process.CauseSandboxGone)),
	} {
		t.Run(r.Name, func(t *testing.T) {
			units := s.read(t, r, "", 0)
			if got, want := output(units, process.Stdout), "a\nb"; string(got) != want {
				t.Errorf("output %q, want %q", got, want)
			}
			s.noExit(t, units)
		})
	}
}

// noExit fails on an exit, and on an orderly end if the protocol has a unit for exits.
func (s *Surface) noExit(t *testing.T, units []Unit) {
	t.Helper()
	for i := range units {
		if units[i].What == End {
			t.Errorf("unit %d of %d is an exit with code %d, want none", i+1, len(units), units[i].Code)
		}
	}
	if last := units[len(units)-1]; s.Exits && (last.What != Last || last.Err == "") {
		t.Errorf("end of stream %+v, want an error", last)
	}
}

func (s *Surface) failed(t *testing.T) {
	r := NewRecord("failed", process.Spec{Cmd: "x", Cwd: "/nope"},
		process.Failed{Kind: uint32(kind.Invalid), Message: "cwd '/nope' does not exist"}, Unseen(process.CauseNotStarted))
	units := s.read(t, r, "", 0)
	s.noExit(t, units)
	for i := range units {
		if units[i].What == Start || units[i].What == Data {
			t.Errorf("unit %d is %+v of a process that never ran", i+1, units[i])
		}
	}
}

func (s *Surface) gap(t *testing.T) {
	r := NewRecord("hole", process.Spec{Cmd: "x"}, Out("a\n"), process.Gap{From: 4, To: 9, Reason: "bad blocks"})
	r.Events[3].Seq = 9
	units := s.read(t, r, "", 0)
	for i := range units {
		if units[i].What == Gap || units[i].What == Last && units[i].Err != "" {
			return
		}
	}
	t.Errorf("units %+v do not report the gap", units)
}

// silence has a process print a prompt and then nothing for ten minutes.
func (s *Surface) silence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := NewRecord("silent", process.Spec{Cmd: "x"}, Out("line\nname? "), Out("\n"), Code(0))
		enc, after := s.Encoder(t, r, "")
		wake := make(chan struct{})
		src := r.Source(after)
		src.Hold, src.Wake = 3, wake
		sink := &Sink{}
		done := make(chan error)
		go func() { done <- stream.Copy(context.Background(), sink, src, enc) }()
		<-time.After(10 * time.Minute) // of the bubble's clock
		synctest.Wait()
		units := s.Decode(t, sink.Raw)
		if got := output(units, process.Stdout); !strings.HasPrefix(string(got), "line\n") {
			t.Errorf("after ten minutes the client has %q, want the line", got)
		}
		if sink.Ended != 0 {
			t.Error("silence ended the stream")
		}
		alive := 0
		for i := range units {
			if units[i].What == Keepalive {
				alive++
			}
		}
		if alive == 0 || alive > 600 {
			t.Errorf("%d keepalives in ten minutes", alive)
		}
		close(wake)
		if err := <-done; err != nil {
			t.Errorf("Copy: %v", err)
		}
		s.check(t, r, withoutKeepalives(s.Decode(t, sink.Raw)))
	})
}

func withoutKeepalives(units []Unit) []Unit {
	var out []Unit
	for _, u := range units {
		if u.What != Keepalive {
			out = append(out, u)
		}
	}
	return out
}

// drain ends streams from outside at each event of a running process.
func (s *Surface) drain(t *testing.T) {
	for _, r := range Records() {
		t.Run(r.Name, func(t *testing.T) {
			for n := 2; n < len(r.Events); n++ {
				synctest.Test(t, func(t *testing.T) { s.drainAt(t, r, n) })
			}
		})
	}
}

func (s *Surface) drainAt(t *testing.T, r *Record, n int) {
	t.Helper()
	enc, after := s.Encoder(t, r, "")
	src := r.Source(after)
	src.Hold = n
	sink := &Sink{}
	ctx, cancel := context.WithCancelCause(context.Background())
	done := make(chan error)
	go func() { done <- stream.Copy(ctx, sink, src, enc) }()
	synctest.Wait()
	cancel(Drained())
	if err := <-done; err != nil {
		t.Errorf("Copy: %v", err)
	}
	units := s.Decode(t, sink.Raw)
	last := len(units) - 1
	if last < 0 || units[last].What != Last || units[last].Err == "" {
		t.Fatalf("after %d events the drain ended with %+v, want an end unit with an error", n, units)
	}
	had := append([]Unit{}, units[:last]...)
	if units[last].Position != "" {
		had = append(had, Unit{What: Other, Position: units[last].Position})
	}
	s.check(t, r, s.resume(t, r, had))
}

// stalled has a client stop reading.
func (s *Surface) stalled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bodies := make([]process.Body, 0, 1001)
		for range 1000 {
			bodies = append(bodies, Out(strings.Repeat("x", 99)+"\n"))
		}
		r := NewRecord("long", process.Spec{Cmd: "x"}, append(bodies, Code(0))...)
		enc, after := s.Encoder(t, r, "")
		src := r.Source(after)
		nexts := 0
		src.Batch, src.Nexts = 10, func() { nexts++ }
		sink := &Sink{Block: make(chan struct{})}
		done := make(chan error)
		go func() { done <- stream.Copy(context.Background(), sink, src, enc) }()
		<-time.After(time.Hour) // of the bubble's clock
		synctest.Wait()
		if nexts > 2 {
			t.Errorf("%d batches were read for a client that reads nothing", nexts)
		}
		close(sink.Block)
		if err := <-done; err != nil {
			t.Errorf("Copy: %v", err)
		}
		s.check(t, r, s.Decode(t, sink.Raw))
	})
}

// Length of a line without an end, and the memory that it may take.
const (
	endless       = 64 << 20
	endlessMemory = 24 << 20
)

// endless sends a line of 64 MiB and measures the heap meanwhile.
func (s *Surface) endless(t *testing.T) {
	if testing.Short() {
		t.Skip("64 MiB")
	}
	frame := make([]byte, 64<<10) // shared by all events; does not compress
	rand.NewChaCha8([32]byte{}).Read(frame)
	for i := range frame {
		frame[i] = frame[i]%64 + '0'
	}
	bodies := make([]process.Body, 0, endless/len(frame)+1)
	for range endless / len(frame) {
		bodies = append(bodies, process.Wrote{Stream: process.Stdout, Data: frame})
	}
	r := NewRecord("endless", process.Spec{Cmd: "x"}, append(bodies, Code(0))...)
	enc, after := s.Encoder(t, r, "")
	src := r.Source(after)
	src.Batch = 4
	var peak, sent uint64
	flushes := 0
	base := heap()
	w := &discard{before: func(n int) {
		sent += uint64(n)
		if flushes++; flushes%64 == 0 {
			peak = max(peak, heap())
		}
	}}
	if err := stream.Copy(context.Background(), w, src, enc); err != nil {
		t.Fatalf("Copy: %v", err)
	}
	if sent < endless/2 { // a surface may compress
		t.Errorf("%d bytes were sent of %d", sent, endless)
	}
	// A growing buffer exists twice, and its line once more while it is sent.
	if most := uint64(endlessMemory + 5*s.MaxLine); peak > base+most {
		t.Errorf("the line took %d MiB, want at most %d", (peak-base)>>20, most>>20)
	}
}

// discard is a stream.Writer that keeps nothing.
type discard struct{ before func(n int) }

func (d *discard) Flush(buf []byte) error {
	d.before(len(buf) - stream.Headroom)
	return nil
}

func (d *discard) End(buf []byte) error { return d.Flush(buf) }

func heap() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
