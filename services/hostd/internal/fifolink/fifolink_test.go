package fifolink

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

const patience = 20 * time.Second

// stream is a pair of FIFOs, which outlives its dialers.
type stream struct {
	toShim, toHostd string
	l               *Listener
}

func newStream(t testing.TB) *stream {
	t.Helper()
	dir := t.TempDir()
	s := &stream{toShim: filepath.Join(dir, "to-shim"), toHostd: filepath.Join(dir, "to-hostd")}
	for _, path := range []string{s.toShim, s.toHostd} {
		if err := unix.Mkfifo(path, 0o600); err != nil {
			t.Fatal(err)
		}
		hold := openPair(t, path, path) // as the driver does, with more space
		unix.FcntlInt(hold.In.Fd(), unix.F_SETPIPE_SZ, 256<<10)
		t.Cleanup(func() { hold.Close() })
	}
	s.l = Listen(openPair(t, s.toShim, s.toHostd))
	t.Cleanup(func() { s.l.Close() })
	return s
}

func openPair(t testing.TB, in, out string) Pair {
	t.Helper()
	var p Pair
	var err error
	if p.In, err = os.OpenFile(in, os.O_RDWR|unix.O_NONBLOCK, 0); err != nil {
		t.Fatal(err)
	}
	if p.Out, err = os.OpenFile(out, os.O_RDWR|unix.O_NONBLOCK, 0); err != nil {
		t.Fatal(err)
	}
	return p
}

// dialerEnd opens the dialer's end.
func (s *stream) dialerEnd(t testing.TB) Pair { return openPair(t, s.toHostd, s.toShim) }

func (s *stream) dial(t testing.TB) *Conn {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	c, err := Dial(ctx, s.dialerEnd(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	c.SetDeadline(time.Now().Add(patience))
	return c
}

func (s *stream) accept(t testing.TB) net.Conn {
	t.Helper()
	c, err := s.l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	c.SetReadDeadline(time.Now().Add(patience))
	return c
}

func noise(seed uint64, n int) []byte {
	b := make([]byte, n)
	r := rand.NewChaCha8([32]byte{byte(seed)})
	r.Read(b)
	return b
}

func TestBytesArriveWhole(t *testing.T) {
	s := newStream(t)
	want := noise(1, 5<<20)
	c, d := s.dial(t), s.accept(t)
	for _, tt := range []struct {
		name     string
		from, to net.Conn
	}{{"to the shim", c, d}, {"to hostd", d, c}} {
		t.Run(tt.name, func(t *testing.T) {
			wrote := make(chan error, 1)
			go func() {
				r := rand.New(rand.NewPCG(1, 2))
				for left := want; len(left) > 0; {
					n := min(len(left), r.IntN(1+1<<r.IntN(18)))
					if m, err := tt.from.Write(left[:n]); err != nil || m != n {
						wrote <- err
						return
					}
					left = left[n:]
				}
				wrote <- nil
			}()
			got := make([]byte, len(want))
			if _, err := io.ReadFull(tt.to, got); err != nil || !bytes.Equal(got, want) {
				t.Errorf("wrong bytes, or error %v", err)
			}
			if err := <-wrote; err != nil {
				t.Error(err)
			}
		})
	}
}

func TestBuffersArriveInOrder(t *testing.T) {
	s := newStream(t)
	c, d := s.dial(t), s.accept(t)
	var bufs [][]byte
	for i := range 300 {
		bufs = append(bufs, noise(uint64(i), i*7))
	}
	want := slices.Concat(bufs...)
	go d.(interface{ WriteBuffers([][]byte) error }).WriteBuffers(bufs)
	got := make([]byte, len(want))
	if _, err := io.ReadFull(c, got); err != nil || !bytes.Equal(got, want) {
		t.Errorf("wrong bytes, or error %v", err)
	}
}

func TestCloseEndsTheOtherSide(t *testing.T) {
	s := newStream(t)
	c, d := s.dial(t), s.accept(t)
	d.Write([]byte("last"))
	d.Close()
	if got, err := io.ReadAll(c); string(got) != "last" || err != nil {
		t.Errorf("hostd read %q, %v", got, err)
	}
	c, d = s.dial(t), s.accept(t)
	c.Write([]byte("words"))
	c.Close()
	if got, err := io.ReadAll(d); string(got) != "words" || err != nil {
		t.Errorf("the shim read %q, %v", got, err)
	}
	if _, err := c.Write([]byte("more")); err == nil {
		t.Error("wrote after Close")
	}
}

func TestDialEndsThePreviousConnection(t *testing.T) {
	s := newStream(t)
	first := s.dialerEnd(t)
	if _, err := Dial(t.Context(), first); err != nil {
		t.Fatal(err)
	}
	old := s.accept(t)
	old.Write([]byte("never read"))
	first.Close() // as a kill does: without a last record
	c, d := s.dial(t), s.accept(t)
	if n, err := old.Read(make([]byte, 9)); n != 0 || !errors.Is(err, io.EOF) {
		t.Errorf("the previous connection: %d, %v; want EOF", n, err)
	}
	if _, err := old.Write([]byte("x")); !errors.Is(err, net.ErrClosed) {
		t.Errorf("write on the previous connection: %v, want %v", err, net.ErrClosed)
	}
	old.Close()
	d.Write([]byte("new"))
	d.Close()
	if got, err := io.ReadAll(c); string(got) != "new" || err != nil {
		t.Errorf("got %q, %v", got, err)
	}
}

// truncatedStream is a stream that fails after some bytes.
type truncatedStream struct {
	Pair
	left int
}

var errCut = errors.New("cut off")

func (c *truncatedStream) Write(b []byte) (int, error) {
	n := min(c.left, len(b))
	c.left -= n
	if m, err := c.Pair.Write(b[:n]); err != nil {
		return m, err
	}
	if n < len(b) {
		return n, errCut
	}
	return n, nil
}

// TestTruncatedDialer: wherever the dialer's bytes end, the listener reads only a prefix,
// and the next connection works.
func TestTruncatedDialer(t *testing.T) {
	s := newStream(t)
	sync, _ := hello(kindSync, version, make([]byte, nonceLen))
	preface := 2*maxRecord + len(sync)
	// A forged sync, with all the zeroes that one record can hold before it.
	forged := append(make([]byte, maxData-len(sync)), sync...)
	text := slices.Concat([]byte("begin"), forged, forged, noise(3, 3*maxRecord), forged)
	points := []int{0, 1, maxRecord - 1, maxRecord, 2 * maxRecord, 2*maxRecord + 1, preface - 1, preface}
	for i := range 60 {
		points = append(points, preface+i*i*i/2)
	}
	for _, at := range points {
		rw := &truncatedStream{Pair: s.dialerEnd(t), left: at}
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		if at < preface {
			cancel() // the listener would not answer
		}
		c, err := Dial(ctx, rw)
		if (err == nil) != (at >= preface) {
			t.Fatalf("cut after %d: dial: %v", at, err)
		}
		cancel()
		read := make(chan []byte, 1)
		if c != nil {
			d := s.accept(t)
			go func() {
				b, _ := io.ReadAll(d)
				d.Close()
				read <- b
			}()
			c.Write(text)
			rw.Close()
		} else {
			read <- nil
		}
		s.dialAgain(t, at)
		if got := <-read; !bytes.HasPrefix(text, got) {
			t.Fatalf("cut after %d: read %d bytes that differ from those sent", at, len(got))
		}
	}
}

func (s *stream) dialAgain(t *testing.T, at int) {
	t.Helper()
	c, d := s.dial(t), s.accept(t)
	c.Write([]byte("after"))
	c.Close()
	if got, err := io.ReadAll(d); string(got) != "after" || err != nil {
		t.Fatalf("cut after %d: then %q, %v", at, got, err)
	}
	d.Close()
}

func TestFullStreamDelaysNoOtherConnection(t *testing.T) {
	s := newStream(t)
	c, d := s.dial(t), s.accept(t)
	stuck := make(chan struct{})
	go func() { // not read
		d.Write(make([]byte, 1<<20))
		close(stuck)
	}()
	c.SetWriteDeadline(time.Now().Add(50 * time.Millisecond))
	if _, err := c.Write(make([]byte, 1<<20)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("write to a peer that does not read: %v", err)
	}
	c.Close()
	go io.Copy(io.Discard, d)
	c, d = s.dial(t), s.accept(t)
	<-stuck
	go d.Write([]byte("word"))
	if n, err := io.ReadFull(c, make([]byte, 4)); n != 4 || err != nil {
		t.Errorf("got %d, %v", n, err)
	}
}

// TestBegin: Begin does not wait for a paused listener.
func TestBegin(t *testing.T) {
	s := newStream(t)
	s.l.Close()
	c := Begin(s.dialerEnd(t))
	defer c.Close()
	if _, err := c.Write([]byte("early")); err != nil {
		t.Fatal(err)
	}
	s.l = Listen(openPair(t, s.toShim, s.toHostd))
	d := s.accept(t)
	if b := make([]byte, 5); true {
		if _, err := io.ReadFull(d, b); err != nil || string(b) != "early" {
			t.Errorf("got %q, %v", b, err)
		}
	}
	c.SetReadDeadline(time.Now().Add(patience))
	go d.Write([]byte("late"))
	if _, err := io.ReadFull(c, make([]byte, 4)); err != nil {
		t.Error(err)
	}
}

// TestNudge: a nudge delivers no data, also before the answer; it wakes the reader of the
// stream.
func TestNudge(t *testing.T) {
	s := newStream(t)
	c := Begin(s.dialerEnd(t))
	defer c.Close()
	var want []byte
	for i := range 5 {
		if err := c.Nudge(); err != nil {
			t.Fatal(err)
		}
		data := noise(uint64(i), 100)
		want = append(want, data...)
		if _, err := c.Write(data); err != nil {
			t.Fatal(err)
		}
	}
	got := make([]byte, len(want))
	if _, err := io.ReadFull(s.accept(t), got); err != nil || !bytes.Equal(got, want) {
		t.Errorf("wrong bytes, or error %v", err)
	}
	s.l.Close() // without a listener, written data stays in the stream
	if err := c.Nudge(); err != nil {
		t.Fatal(err)
	}
	hold := openPair(t, s.toShim, s.toShim)
	defer hold.Close()
	if n, err := hold.In.Read(make([]byte, 100)); n != headLen || err != nil {
		t.Errorf("a nudge is %d bytes, %v", n, err)
	}
}

func TestDialEndsWithItsContext(t *testing.T) {
	s := newStream(t)
	s.l.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if _, err := Dial(ctx, s.dialerEnd(t)); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v", err)
	}
}

func TestReadContinuesAfterADeadline(t *testing.T) {
	s := newStream(t)
	c, d := s.dial(t), s.accept(t)
	record, _, _ := appendRecord(nil, kindData, s.l.out.sum, []byte("whole"))
	raw := s.l.rw
	raw.Write(record[:len(record)-2])
	c.SetReadDeadline(time.Now().Add(30 * time.Millisecond))
	if n, err := c.Read(make([]byte, 9)); n != 0 || !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("half a record: %d, %v", n, err)
	}
	raw.Write(record[len(record)-2:])
	c.SetReadDeadline(time.Now().Add(patience))
	b := make([]byte, 9)
	if n, err := c.Read(b); string(b[:n]) != "whole" || err != nil {
		t.Errorf("got %q, %v", b[:n], err)
	}
	d.SetReadDeadline(time.Now().Add(-time.Second))
	if _, err := d.Read(b); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("listener's end: %v", err)
	}
}

func TestForeignBytesBreakTheConnection(t *testing.T) {
	for name, change := range map[string]func(rec []byte) []byte{
		"a changed byte":   func(b []byte) []byte { b[headLen+1]++; return b },
		"a changed head":   func(b []byte) []byte { b[1]--; return b },
		"a lost record":    func([]byte) []byte { return nil },
		"a record twice":   func(b []byte) []byte { return append(b, b...) },
		"a huge record":    func(b []byte) []byte { b[3] = 0xff; return b },
		"an unknown kind":  func([]byte) []byte { return []byte{7, 0, 0, 0, 0, 0, 0, 0} },
		"an answer inside": func([]byte) []byte { b, _ := hello(kindOpen, version, make([]byte, nonceLen)); return b },
	} {
		t.Run(name, func(t *testing.T) {
			s := newStream(t)
			c, d := s.dial(t), s.accept(t)
			s.l.mu.Lock()
			good, sum, _ := appendRecord(nil, kindData, s.l.out.sum, []byte("good"))
			next, sum, _ := appendRecord(nil, kindData, sum, []byte("next"))
			last, _, _ := appendRecord(nil, kindData, sum, []byte("last"))
			s.l.mu.Unlock()
			s.l.rw.Write(slices.Concat(good, change(next), last))
			got, err := io.ReadAll(c)
			if want := []byte("goodnext"); !bytes.HasPrefix(want, got) || !errors.Is(err, ErrBroken) {
				t.Errorf("hostd read %q, %v", got, err)
			}

			c = s.dial(t)
			d.Close()
			d = s.accept(t)
			good, sum, _ = appendRecord(nil, kindData, c.write.sum, []byte("good"))
			next, sum, _ = appendRecord(nil, kindData, sum, []byte("next"))
			last, _, _ = appendRecord(nil, kindData, sum, []byte("last"))
			c.rw.Write(slices.Concat(good, change(next), last))
			got, err = io.ReadAll(d)
			if want := []byte("goodnext"); !bytes.HasPrefix(want, got) || !errors.Is(err, io.ErrUnexpectedEOF) {
				t.Errorf("the shim read %q, %v", got, err)
			}
			s.dial(t)
			s.accept(t)
		})
	}
}

// aside replaces the listener by one with another program, here a function, for DialAside.
func (s *stream) aside(t *testing.T, answer func(nonce []byte) error) {
	t.Helper()
	s.l.Close()
	s.l = ListenAside(openPair(t, s.toShim, s.toHostd), answer)
	t.Cleanup(func() { s.l.Close() })
}

// TestAside: DialAside returns what another program writes, completely or with an error.
// After that, Dial reaches the listener again.
func TestAside(t *testing.T) {
	s := newStream(t)
	want, broken := noise(1, 1<<20), errors.New("broken")
	var fails bool
	s.aside(t, func(nonce []byte) error {
		out := openPair(t, s.toShim, s.toHostd)
		defer out.Close()
		w := Resume(out, nonce)
		if fails {
			w.Write(want[:100_000])
			return broken
		}
		_, err := w.Write(want)
		return errors.Join(err, w.Close())
	})
	for i := range 6 {
		fails = i%2 == 1
		old := s.dial(t)
		listener := s.accept(t)
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		c, err := DialAside(ctx, s.dialerEnd(t))
		cancel()
		if err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(c)
		if fails != errors.Is(err, ErrBroken) || !fails && err != nil || !bytes.HasPrefix(want, got) || !fails && len(got) != len(want) {
			t.Errorf("%d of %d bytes, %v", len(got), len(want), err)
		}
		if _, err := listener.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
			t.Errorf("the previous connection reads %v", err)
		}
		c.Close()
		old.Close()
		s.dialAgain(t, i)
	}
}

// TestTruncatedAside: a stream of DialAside that ends between two records is incomplete.
func TestTruncatedAside(t *testing.T) {
	answer, sum := hello(kindOpen, aside, make([]byte, nonceLen))
	data, next, _ := appendRecord(nil, kindData, sum, []byte("text"))
	end, _, _ := appendRecord(nil, kindEnd, next)
	for _, c := range []struct {
		in   []byte
		want error
	}{{data, io.ErrUnexpectedEOF}, {slices.Concat(data, end), nil}} {
		conn := &Conn{rw: readOnly{bytes.NewReader(slices.Concat(answer, c.in))}, to: aside, answered: make(chan struct{})}
		close(conn.answered)
		conn.read.sum = sum
		if err := conn.read.buf.seek(conn.rw, answer); err != nil {
			t.Fatal(err)
		}
		if got, err := io.ReadAll(conn); string(got) != "text" || !errors.Is(err, c.want) {
			t.Errorf("%q, %v; want %v", got, err, c.want)
		}
	}
}

// TestDialAsideWithoutProgram waits until its context ends.
func TestDialAsideWithoutProgram(t *testing.T) {
	s := newStream(t)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := DialAside(ctx, s.dialerEnd(t)); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%v", err)
	}
	s.dialAgain(t, 1)
}
