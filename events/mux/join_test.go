package mux_test

import (
	"bytes"
	"io"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/millrace/events/mux"
)

// joined returns a stream to a server; serve runs at the server's end of a TCP connection.
func joined(t *testing.T, serve func(*net.TCPConn)) *mux.Stream {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	go func() {
		c, err := ln.Accept()
		if err != nil {
			return
		}
		serve(c.(*net.TCPConn))
	}()
	over := make(chan struct{})
	a, _ := pair(t, mux.Config{Window: 16 << 10, Accept: func(s *mux.Stream) {
		go func() {
			defer close(over)
			c, err := net.Dial("tcp", ln.Addr().String())
			if err != nil {
				s.Abort(err)
				return
			}
			s.Accept()
			mux.Join(s, c.(*net.TCPConn))
		}()
	}})
	s := open(t, a, "")
	t.Cleanup(func() {
		s.Abort(nil)
		<-over
	})
	return s
}

// pour writes until the other end stops it.
func pour(s *mux.Stream) <-chan error {
	done := make(chan error, 1)
	go func() {
		for b := make([]byte, 32<<10); ; {
			if _, err := s.Write(b); err != nil {
				done <- err
				return
			}
		}
	}()
	return done
}

func TestJoinReadsAllFromAPeerThatStopsReading(t *testing.T) {
	said := bytes.Repeat([]byte("said "), 12_000) // larger, and the kernel's buffer would lose it with the reset
	s := joined(t, func(c *net.TCPConn) {
		io.ReadFull(c, make([]byte, 1000))
		c.Write(said)
		c.Close() // with unread data, which makes it a reset
	})
	done := pour(s)
	got, err := io.ReadAll(s)
	if !bytes.Equal(got, said) {
		t.Errorf("got %d bytes of %d, %v", len(got), len(said), err)
	}
	if err == nil {
		t.Error("a reset was reported as io.EOF")
	}
	if err := <-done; err == nil {
		t.Error("the writer got no error although the peer stopped reading")
	}
}

func TestJoinForwardsEOFWhileTheOtherSideSends(t *testing.T) {
	s := joined(t, func(c *net.TCPConn) {
		io.ReadFull(c, make([]byte, 1000))
		io.WriteString(c, "enough")
		c.CloseWrite()
		io.Copy(io.Discard, c)
		c.Close()
	})
	done := pour(s)
	if got, err := io.ReadAll(s); string(got) != "enough" || err != nil {
		t.Errorf("got %q, %v", got, err)
	}
	s.Close()
	<-done
}

func TestDataPrecedesTheCloseError(t *testing.T) {
	a, _ := pair(t, mux.Config{Window: 16 << 10, Accept: func(s *mux.Stream) {
		s.Accept()
		go func() {
			s.Write(make([]byte, 60<<10))
			s.CloseWithError(io.ErrNoProgress)
		}()
	}})
	got, err := io.ReadAll(open(t, a, ""))
	if len(got) != 60<<10 || err == nil || err.Error() == io.EOF.Error() {
		t.Errorf("got %d bytes, %v", len(got), err)
	}
	t.Log(err)
}

// mute is a server that sends nothing and reads on demand.
type mute struct {
	net.Conn
	ended chan struct{}
}

func (m *mute) CloseWrite() error { close(m.ended); return nil }

func newMute() (near *mute, far net.Conn) {
	c, far := net.Pipe()
	return &mute{c, make(chan struct{})}, far
}

// After an abort, Join does not wait for a server that neither reads nor sends.
func TestAnAbortUnblocksJoin(t *testing.T) {
	for name, cut := range map[string]func(s *mux.Stream, b *end){
		"it does not read":                     func(s *mux.Stream, _ *end) { s.Abort(nil) },
		"it does not read, the channel breaks": func(_ *mux.Stream, b *end) { b.Break(io.ErrClosedPipe) },
		"it does not answer":                   func(s *mux.Stream, _ *end) { s.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server, far := newMute()
				over := make(chan error, 1)
				a, b := pair(t, mux.Config{Accept: func(s *mux.Stream) {
					s.Accept()
					go func() { over <- mux.Join(s, server) }()
				}})
				s := open(t, a, "")
				s.Write(make([]byte, 100<<10))
				if name == "it does not answer" {
					io.ReadFull(far, make([]byte, 100<<10))
				}
				synctest.Wait()
				cut(s, b)
				<-over // otherwise synctest reports a deadlock
			})
		})
	}
}

// A slow reader gets all data of a stream that was closed in order, whatever happens to the
// response.
func TestASlowReaderGetsAllDataBeforeEOF(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server, far := newMute()
		over := make(chan error, 1)
		a, _ := pair(t, mux.Config{Accept: func(s *mux.Stream) {
			s.Accept()
			go func() { over <- mux.Join(s, server) }()
		}})
		s := open(t, a, "")
		const size = 200 << 10
		s.Write(make([]byte, size))
		s.Close()
		for got := 0; got < size; {
			synctest.Wait()
			<-time.After(20 * time.Second)
			n, err := far.Read(make([]byte, 32<<10))
			if got += n; err != nil {
				t.Fatalf("after %d bytes: %v", got, err)
			}
		}
		<-server.ended
		<-over
	})
}
