package mux_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/mux"
)

// end is one end of a channel whose frames go straight to the other end.
type end struct {
	*mux.Mux
	wake chan struct{}
}

func newEnd(cfg mux.Config) *end {
	e := &end{wake: make(chan struct{}, 1)}
	cfg.Wake = func() {
		select {
		case e.wake <- struct{}{}:
		default:
		}
	}
	e.Mux = mux.New(cfg)
	return e
}

// carry moves the frames of from to to until done.
func carry(t testing.TB, from, to *end, done <-chan struct{}) {
	var buf []byte
	for {
		select {
		case <-from.wake:
		case <-done:
			return
		}
		for from.Pending() {
			buf = from.Append(buf[:0], 64<<10)
			rest := buf
			for len(rest) > 0 {
				ty, payload, r, ok := mux.Split(rest)
				if !ok {
					t.Errorf("%x is not a frame", rest)
					return
				}
				if err := to.Handle(ty, payload); err != nil {
					t.Errorf("frame of type %d: %v", ty, err)
					return
				}
				rest = r
			}
		}
	}
}

// pair returns two connected ends; b accepts streams with cfg.Accept.
func pair(t testing.TB, cfg mux.Config) (a, b *end) {
	a = newEnd(mux.Config{Even: true, Window: cfg.Window, MaxOpen: cfg.MaxOpen, MaxEach: cfg.MaxEach, Budget: cfg.Budget})
	b = newEnd(cfg)
	done := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() { carry(t, a, b, done) })
	wg.Go(func() { carry(t, b, a, done) })
	t.Cleanup(func() {
		a.Break(io.ErrClosedPipe)
		b.Break(io.ErrClosedPipe)
		close(done)
		wg.Wait()
	})
	return a, b
}

func open(t testing.TB, a *end, target string) *mux.Stream {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	s, err := a.Open(ctx, target)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// echo returns all data, and ends when its peer does.
func echo(s *mux.Stream) {
	s.Accept()
	go func() {
		defer s.Close()
		io.Copy(s, s)
		s.CloseWrite()
	}()
}

func TestEveryStreamGetsItsOwnBytesInOrder(t *testing.T) {
	for _, window := range []int{1, 1000, 0} {
		a, b := pair(t, mux.Config{Accept: echo, Window: window})
		size := 300 << 10
		if window == 1 {
			size = 1000
		}
		var wg sync.WaitGroup
		for i := range 20 {
			wg.Go(func() {
				data := make([]byte, size)
				rand.NewChaCha8([32]byte{byte(i)}).Read(data)
				s := open(t, a, "echo")
				go func() {
					for rest := data; len(rest) > 0; {
						n, err := s.Write(rest[:min(len(rest), 1+rand.IntN(50<<10))])
						if err != nil {
							t.Errorf("write: %v", err)
							return
						}
						rest = rest[n:]
					}
					s.CloseWrite()
				}()
				got, err := io.ReadAll(s)
				if err != nil || sha256.Sum256(got) != sha256.Sum256(data) {
					t.Errorf("window %d: %d bytes, %v; want %d", window, len(got), err, len(data))
				}
				s.Close()
			})
		}
		wg.Wait()
		if a.Count() != 0 || b.Count() != 0 {
			t.Errorf("window %d: %d and %d streams are left", window, a.Count(), b.Count())
		}
	}
}

func TestARejectedOpenReturnsTheReason(t *testing.T) {
	a, _ := pair(t, mux.Config{Accept: func(s *mux.Stream) {
		s.Abort(kind.Newf(kind.Denied, "open", "", "not %s", s.Target()))
	}})
	_, err := a.Open(t.Context(), "there")
	if !kind.Is(err, kind.Denied) || kind.Message(err) != "not there" {
		t.Errorf("got %v", err)
	}
	if a.Count() != 0 {
		t.Error("the stream is left")
	}
}

func TestOpenReturnsWhenItsContextEnds(t *testing.T) {
	a, _ := pair(t, mux.Config{Accept: func(*mux.Stream) {}})
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if _, err := a.Open(ctx, "nowhere"); !kind.Is(err, kind.Deadline) {
		t.Errorf("got %v", err)
	}
}

// A reader of an aborted stream gets the data before the abort, then an error, never
// io.EOF.
func TestAnAbortIsNotEOF(t *testing.T) {
	cuts := map[string]func(s *mux.Stream, a, b *end){
		"reset":   func(s *mux.Stream, _, _ *end) { s.Abort(nil) },
		"channel": func(_ *mux.Stream, a, _ *end) { a.Break(io.ErrUnexpectedEOF) },
	}
	for name, cut := range cuts {
		t.Run(name, func(t *testing.T) {
			there := make(chan *mux.Stream, 1)
			a, b := pair(t, mux.Config{Accept: func(s *mux.Stream) { s.Accept(); there <- s }})
			s := open(t, a, "")
			other := <-there
			if _, err := other.Write([]byte("some")); err != nil {
				t.Fatal(err)
			}
			var got [4]byte
			if _, err := io.ReadFull(s, got[:]); err != nil {
				t.Fatal(err)
			}
			cut(other, a, b)
			if n, err := s.Read(got[:]); n != 0 || err == nil || errors.Is(err, io.EOF) {
				t.Errorf("got %d, %v", n, err)
			}
			if _, err := s.Write(got[:]); err == nil {
				t.Error("an aborted stream accepts data")
			}
		})
	}
}

func TestAnUnreadStreamDoesNotBlockOthers(t *testing.T) {
	a, _ := pair(t, mux.Config{Window: 4 << 10, Accept: func(s *mux.Stream) {
		if s.Target() == "stuck" {
			s.Accept()
			return
		}
		echo(s)
	}})
	stuck := open(t, a, "stuck")
	stuck.SetWriteDeadline(time.Now().Add(50 * time.Millisecond))
	n, err := stuck.Write(make([]byte, 1<<20))
	if !errors.Is(err, os.ErrDeadlineExceeded) || n > 4<<10+64<<10 {
		t.Errorf("an unread stream accepted %d bytes: %v", n, err)
	}
	s := open(t, a, "echo")
	go func() {
		s.Write(make([]byte, 1<<20))
		s.CloseWrite()
	}()
	if n, err := io.Copy(io.Discard, s); n != 1<<20 || err != nil {
		t.Errorf("beside it: %d bytes, %v", n, err)
	}
}

func TestReadDeadline(t *testing.T) {
	a, _ := pair(t, mux.Config{Accept: echo})
	s := open(t, a, "")
	s.SetReadDeadline(time.Now().Add(10 * time.Millisecond))
	if _, err := s.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("got %v", err)
	}
	s.SetReadDeadline(time.Time{})
	s.Write([]byte("x"))
	if _, err := s.Read(make([]byte, 1)); err != nil {
		t.Errorf("without a deadline: %v", err)
	}
}

func TestCloseDeliversWhatWasWritten(t *testing.T) {
	got := make(chan string, 1)
	a, _ := pair(t, mux.Config{Accept: func(s *mux.Stream) {
		s.Accept()
		go func() {
			b, err := io.ReadAll(s)
			if err != nil {
				t.Error(err)
			}
			got <- string(b)
			s.Close()
		}()
	}})
	s := open(t, a, "")
	want := strings.Repeat("words ", 100_000)
	go func() {
		s.Write([]byte(want))
		s.Close()
	}()
	if g := <-got; g != want {
		t.Errorf("got %d bytes, want %d", len(g), len(want))
	}
}

// Open succeeds even if the other end has accepted, written and closed the stream before
// Open returns.
func TestOpenSucceedsIfTheStreamHasAlreadyEnded(t *testing.T) {
	a, _ := pair(t, mux.Config{Accept: func(s *mux.Stream) {
		s.Accept()
		s.Write([]byte("all"))
		s.Close()
	}})
	for range 200 {
		s := open(t, a, "")
		if got, err := io.ReadAll(s); string(got) != "all" || err != nil {
			t.Fatalf("got %q, %v", got, err)
		}
		s.Close()
	}
}

func TestTooManyStreamsAreRejected(t *testing.T) {
	a, _ := pair(t, mux.Config{MaxStreams: 2, Accept: func(s *mux.Stream) { s.Accept() }})
	first := open(t, a, "")
	open(t, a, "")
	if _, err := a.Open(t.Context(), ""); !kind.Is(err, kind.Exhausted) {
		t.Errorf("got %v", err)
	}
	first.Abort(nil)
	open(t, a, "")
}

// Beyond MaxOpen an Open waits, and the other end never rejects one.
func TestOpenWaitsForASlot(t *testing.T) {
	a, _ := pair(t, mux.Config{MaxStreams: 3, MaxOpen: 3, Accept: func(s *mux.Stream) {
		s.Accept()
		s.Write([]byte("all"))
		s.Close()
	}})
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() {
			for range 50 {
				s, err := a.Open(t.Context(), "")
				if err != nil {
					t.Error(err)
					return
				}
				if got, err := io.ReadAll(s); string(got) != "all" || err != nil {
					t.Errorf("got %q, %v", got, err)
				}
				s.Close()
			}
		})
	}
	wg.Wait()
}

func TestOpenWithoutASlotReturnsTheReason(t *testing.T) {
	a, b := pair(t, mux.Config{MaxOpen: 1, Accept: func(s *mux.Stream) { s.Accept() }})
	open(t, a, "")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := a.Open(ctx, ""); !kind.Is(err, kind.Exhausted) {
		t.Errorf("got %v", err)
	}
	waits := make(chan error)
	go func() {
		_, err := a.Open(t.Context(), "")
		waits <- err
	}()
	broken := errors.New("the channel is over")
	a.Break(broken)
	b.Break(broken)
	if err := <-waits; !errors.Is(err, broken) {
		t.Errorf("got %v", err)
	}
}

func frame(t byte, payload ...uint32) []byte {
	b := []byte{t}
	for _, v := range payload {
		b = binary.LittleEndian.AppendUint32(b, v)
	}
	return b
}

func TestProtocolViolations(t *testing.T) {
	const open, window, data, closed, reset = 128, 129, 130, 131, 132
	accepting := func(s *mux.Stream) { s.Accept() }
	tests := []struct {
		name   string
		accept func(*mux.Stream)
		frames [][]byte
		ok     bool
	}{
		{"in order", accepting, [][]byte{frame(open, 1, 9), frame(data, 1, 0), frame(window, 1, 5), frame(closed, 1)}, true},
		{"after its end", accepting, [][]byte{frame(open, 1, 9), append(frame(reset, 1), 0), frame(data, 1, 0)}, true},
		{"an unknown type", accepting, [][]byte{frame(133, 1)}, false},
		{"no id", accepting, [][]byte{frame(data)}, false},
		{"a stream that never was", accepting, [][]byte{frame(data, 1, 0)}, false},
		{"one of ours that never was", accepting, [][]byte{frame(data, 2, 0)}, false},
		{"an id of ours", accepting, [][]byte{frame(open, 2, 9)}, false},
		{"an id twice", accepting, [][]byte{frame(open, 1, 9), frame(open, 1, 9)}, false},
		{"an id that goes back", accepting, [][]byte{frame(open, 3, 9), frame(open, 1, 9)}, false},
		{"data before it was taken", func(*mux.Stream) {}, [][]byte{frame(open, 1, 9), frame(data, 1, 0)}, false},
		{"more than its window", accepting, [][]byte{frame(open, 1, 9), frame(data, 1, 0, 0, 0)}, false},
		{"no data", accepting, [][]byte{frame(open, 1, 9), frame(data, 1)}, false},
		{"data after its end", accepting, [][]byte{frame(open, 1, 9), frame(closed, 1), frame(data, 1, 0)}, false},
		{"two ends", accepting, [][]byte{frame(open, 1, 9), frame(closed, 1), frame(closed, 1)}, false},
		{"too much credit", accepting, [][]byte{frame(open, 1, 1<<30), frame(window, 1, 1<<30)}, false},
		{"too much at once", accepting, [][]byte{frame(open, 1, 1<<31)}, false},
		{"a window of three bytes", accepting, [][]byte{frame(open, 1, 9), frame(window, 1)}, false},
		{"a target too long", accepting, [][]byte{append(frame(open, 1, 9), make([]byte, 1<<10+1)...)}, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			m := mux.New(mux.Config{Even: true, Window: 8, Accept: tt.accept, Wake: func() {}})
			var err error
			for _, f := range tt.frames {
				if err != nil {
					t.Fatalf("before the last frame: %v", err)
				}
				err = m.Handle(f[0], f[1:])
			}
			if (err == nil) != tt.ok || err != nil && !errors.Is(err, mux.ErrProtocol) {
				t.Errorf("got %v, want ok %v", err, tt.ok)
			}
		})
	}
}

// A peer that opens streams and never reads is cut off before it uses much memory.
func TestAFloodOfOpensIsBounded(t *testing.T) {
	m := mux.New(mux.Config{Even: true, MaxStreams: 1, Accept: func(*mux.Stream) {}, Wake: func() {}})
	for id := uint32(1); ; id += 2 {
		if err := m.Handle(128, frame(0, id, 9)[1:]); err != nil {
			return
		}
		if id > 1<<20 {
			t.Fatal("a million opens were answered without a reader")
		}
	}
}

func FuzzHandle(f *testing.F) {
	f.Add(bytes.Join([][]byte{
		{8, 0, 0, 0, 128, 0, 0, 0, 1, 0, 0, 0, 9, 0, 0, 0},
		{5, 0, 0, 0, 130, 0, 0, 0, 1, 0, 0, 0, 'x'},
		{4, 0, 0, 0, 131, 0, 0, 0, 1, 0, 0, 0},
	}, nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		var opened []*mux.Stream
		m := mux.New(mux.Config{Even: true, Window: 64, MaxStreams: 4, Wake: func() {}, Accept: func(s *mux.Stream) {
			s.Accept()
			opened = append(opened, s)
		}})
		for {
			ty, payload, rest, ok := mux.Split(b)
			if !ok {
				break
			}
			if err := m.Handle(ty, payload); err != nil && !errors.Is(err, mux.ErrProtocol) {
				t.Fatal(err)
			}
			b = rest
		}
		if m.Count() > 4 {
			t.Errorf("%d streams", m.Count())
		}
		for _, s := range opened {
			s.SetReadDeadline(time.Unix(1, 0))
			if got, _ := io.ReadAll(s); len(got) > 64 {
				t.Errorf("%d bytes with a window of 64", len(got))
			}
			s.Close()
		}
		for m.Pending() {
			m.Append(nil, 1<<20)
		}
		m.Break(io.EOF)
	})
}

func BenchmarkOneStream(b *testing.B) {
	a, _ := pair(b, mux.Config{Accept: func(s *mux.Stream) {
		s.Accept()
		go func() { io.Copy(io.Discard, s); s.Close() }()
	}})
	s := open(b, a, "")
	chunk := make([]byte, 32<<10)
	b.SetBytes(int64(len(chunk)))
	for b.Loop() {
		if _, err := s.Write(chunk); err != nil {
			b.Fatal(err)
		}
	}
	s.CloseWrite()
	s.Read(chunk) // until the other end has all data
}

// An accepted Write succeeds, even if the other end has responded and closed before Write
// returns.
func TestWriteSucceedsIfThePeerHasAlreadyClosed(t *testing.T) {
	var s *mux.Stream
	answered := make(chan *mux.Stream, 1)
	b := mux.New(mux.Config{Wake: func() {}, Accept: func(s *mux.Stream) { s.Accept(); answered <- s }})
	var a *mux.Mux
	pass := func(from, to *mux.Mux) {
		for rest := from.Append(nil, 64<<10); len(rest) > 0; {
			ty, payload, r, _ := mux.Split(rest)
			if err := to.Handle(ty, payload); err != nil {
				t.Fatal(err)
			}
			rest = r
		}
	}
	a = mux.New(mux.Config{Even: true, Wake: func() {
		if s == nil {
			go func() { pass(a, b); pass(b, a) }() // Open waits for the response
			return
		}
		pass(a, b)
		(<-answered).Close()
		pass(b, a)
	}})
	got, err := a.Open(t.Context(), "x")
	if err != nil {
		t.Fatal(err)
	}
	s = got
	if n, err := s.Write([]byte("question")); n != 8 || err != nil {
		t.Errorf("%d, %v", n, err)
	}
	if _, err := s.Write([]byte("more")); err == nil {
		t.Error("a Write succeeds after the other end has closed")
	}
}
