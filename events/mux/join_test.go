package mux_test

import (
	"bytes"
	"io"
	"net"
	"testing"

	"github.com/millrace/millrace/events/mux"
)

// joined gives a stream to a server that serve plays on its end of a TCP
// connection.
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

// pour writes until the other end has enough.
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

func TestJoinHearsOutWhoDoesNotListen(t *testing.T) {
	said := bytes.Repeat([]byte("said "), 12_000) // what its system keeps to itself is lost with it
	s := joined(t, func(c *net.TCPConn) {
		io.ReadFull(c, make([]byte, 1000))
		c.Write(said)
		c.Close() // with much that was not read, which makes it a reset
	})
	done := pour(s)
	got, err := io.ReadAll(s)
	if !bytes.Equal(got, said) {
		t.Errorf("got %d bytes of %d, %v", len(got), len(said), err)
	}
	if err == nil {
		t.Error("a reset is taken for an end")
	}
	if err := <-done; err == nil {
		t.Error("nobody was told that nobody reads")
	}
}

func TestJoinPassesOnAnEndToWhoStillSends(t *testing.T) {
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

func TestWhatWasWrittenComesBeforeTheReason(t *testing.T) {
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
