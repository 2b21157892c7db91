package fifolink

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"slices"
	"testing"
	"time"
)

// FuzzReader: a listener must read a prefix of the bytes written after a valid sync,
// with any bytes before and after it.
func FuzzReader(f *testing.F) {
	sync, sum := hello(kindSync, version, make([]byte, nonceLen))
	data, _, _ := appendRecord(nil, kindData, sum, []byte("text"))
	f.Add([]byte{}, []byte{})
	f.Add(data, data)
	f.Add(append(make([]byte, maxRecord-1), sync...), []byte{kindEnd, 0, 0, 0})
	f.Add(data[:9], append(make([]byte, maxRecord), sync...))
	f.Fuzz(func(t *testing.T, before, after []byte) {
		preface := slices.Concat(make([]byte, 2*maxRecord), sync)
		in := bytes.NewReader(slices.Concat(before, preface, data, after))
		var r reader
		var got []byte
		synced := false
		for {
			rec, err := r.next(func(b *buffer) error { return b.fill(in) })
			if err != nil {
				break
			}
			switch rec.kind {
			case kindSync:
				synced, got = true, nil
			case kindData:
				got = append(got, rec.data...)
			}
			if synced && len(got) >= 4 && string(got[:4]) == "text" {
				return
			}
		}
		// Only a sync with its zeroes, in the fuzzed bytes, can have come between.
		if !bytes.Contains(before, make([]byte, 256)) && !bytes.Contains(after, make([]byte, 256)) {
			t.Errorf("synced %v, read %q", synced, got)
		}
	})
}

// FuzzConn: a hostile peer never makes a dialer read data that does not continue the
// answer.
func FuzzConn(f *testing.F) {
	answer, sum := hello(kindOpen, version, make([]byte, nonceLen))
	data, next, _ := appendRecord(nil, kindData, sum, []byte("text"))
	end, _, _ := appendRecord(nil, kindEnd, next)
	f.Add([]byte{})
	f.Add(slices.Concat(data, end))
	f.Add(slices.Concat(data, data))
	f.Add(slices.Concat(answer, data[:7]))
	f.Fuzz(func(t *testing.T, in []byte) {
		c := &Conn{rw: readOnly{bytes.NewReader(in)}, answered: make(chan struct{})}
		close(c.answered)
		c.read.sum = sum
		got, err := io.ReadAll(c)
		var want []byte
		for rest, s := in, sum; ; {
			kind, data, n, err := parseRecord(rest, s)
			if n == 0 || err != nil || kind != kindData {
				break
			}
			want, s, rest = append(want, data...), sumOf(rest), rest[n:]
		}
		if !bytes.Equal(got, want) {
			t.Errorf("got %q, %v; want %q", got, err, want)
		}
	})
}

type readOnly struct{ io.Reader }

func (readOnly) Write(b []byte) (int, error) { return len(b), nil }
func (readOnly) Close() error                { return nil }

// victim is the variable that makes the test binary a hostd that writes until it is
// killed.
const victim = "SERIAL_TEST_VICTIM"

func TestMain(m *testing.M) {
	if os.Getenv(victim) == "" {
		os.Exit(m.Run())
	}
	c, err := Dial(context.Background(), Pair{In: os.Stdin, Out: os.Stdout})
	if err != nil {
		os.Exit(1)
	}
	for i := 0; ; i++ {
		if _, err := c.Write(bytes.Repeat([]byte{byte(i)}, 50_000)); err != nil {
			os.Exit(1)
		}
	}
}

func TestDialerKilled(t *testing.T) {
	s := newStream(t)
	for i := range 20 {
		p := s.dialerEnd(t)
		cmd := exec.Command(os.Args[0])
		cmd.Env = []string{victim + "=1"}
		cmd.Stdin, cmd.Stdout = p.In, p.Out
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		p.Close()
		d := s.accept(t)
		read := make(chan []byte)
		go func() {
			b, err := io.ReadAll(d)
			if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) {
				t.Error(err)
			}
			d.Close()
			read <- b
		}()
		<-time.After(time.Duration(i) * 300 * time.Microsecond)
		cmd.Process.Kill()
		cmd.Wait()
		s.dialAgain(t, i)
		for j, b := range <-read {
			if b != byte(j/50_000) {
				t.Fatalf("byte %d is %d", j, b)
			}
		}
	}
}

func BenchmarkToHostd(b *testing.B)   { benchmark(b, false) }
func BenchmarkToTheShim(b *testing.B) { benchmark(b, true) }

func benchmark(b *testing.B, toShim bool) {
	s := newStream(b)
	c, d := s.dial(b), s.accept(b)
	c.SetDeadline(time.Time{})
	d.SetReadDeadline(time.Time{})
	from, to := io.Writer(d), io.Reader(c)
	if toShim {
		from, to = c, d
	}
	chunk := noise(1, 128<<10)
	b.SetBytes(int64(len(chunk)))
	go func() {
		for {
			if _, err := from.Write(chunk); err != nil {
				return
			}
		}
	}()
	in := make([]byte, len(chunk))
	for b.Loop() {
		if _, err := io.ReadFull(to, in); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkPipe measures the pipe alone, for comparison.
func BenchmarkPipe(b *testing.B) {
	s := newStream(b)
	s.l.Close()
	from, to := s.dialerEnd(b), openPair(b, s.toShim, s.toHostd)
	chunk := noise(1, 64<<10)
	b.SetBytes(int64(len(chunk)))
	go func() {
		for {
			if _, err := from.Write(chunk); err != nil {
				return
			}
		}
	}()
	in := make([]byte, len(chunk))
	for b.Loop() {
		if _, err := io.ReadFull(to, in); err != nil {
			b.Fatal(err)
		}
	}
	from.Close()
	to.Close()
}

func BenchmarkDial(b *testing.B) {
	s := newStream(b)
	for b.Loop() {
		c := s.dial(b)
		s.accept(b).Close()
		c.Close()
	}
}
