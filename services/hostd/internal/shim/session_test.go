package shim

import (
	"bytes"
	"net"
	"syscall"
	"testing"
	"testing/synctest"

	"github.com/millrace/millrace/events/process"
	"github.com/millrace/millrace/services/hostd/internal/wire"
)

// failing is a listener that returns the errors one after the other.
type failing struct {
	net.Listener
	errs []error
}

func (l *failing) Accept() (net.Conn, error) {
	err := l.errs[0]
	l.errs = l.errs[1:]
	return nil, err
}

// TestAcceptContinuesAfterAnError: a shim that runs out of descriptors accepts again later.
func TestAcceptContinuesAfterAnError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ln := &failing{errs: []error{syscall.EMFILE, syscall.ECONNABORTED, net.ErrClosed}}
		(&Shim{cfg: Config{Listener: ln}}).accept()
		if len(ln.errs) > 0 {
			t.Errorf("accept ended before %v", ln.errs)
		}
	})
}

// TestReaderContinuesWhenControlWasSent: a session with too many unsent control frames
// reads no command until they are sent, and then continues.
func TestReaderContinuesWhenControlWasSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &Shim{}
		c := &session{s: s, control: make([]byte, maxControl+1)}
		c.wake.L = &s.mu
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			c.read(wire.NewReader(bytes.NewReader(wire.AppendForget(nil, "nobody"))))
		}()
		synctest.Wait()
		s.mu.Lock()
		c.collect(&batch{})
		s.mu.Unlock()
		synctest.Wait()
		select {
		case <-ended:
		default:
			t.Error("the reader waits forever")
			s.mu.Lock()
			c.wake.Broadcast()
			s.mu.Unlock()
		}
	})
}

// TestClosedSessionStartsNothing: a closed connection may still have a start to read. It is
// ignored, since the next connection has already received the list of processes.
func TestClosedSessionStartsNothing(t *testing.T) {
	s := &Shim{procs: make(map[string]*proc), ending: true}
	spec := process.Spec{Cmd: "true"}
	start := wire.AppendStart(nil, &wire.Start{Token: "late", Spec: process.AppendSpec(nil, &spec)})
	for closed, want := range map[bool]int{true: 0, false: 1} {
		c := &session{s: s, closed: closed}
		c.wake.L = &s.mu
		c.read(wire.NewReader(bytes.NewReader(start)))
		if len(s.procs) != want {
			t.Errorf("closed %v: %d processes", closed, len(s.procs))
		}
		clear(s.procs)
	}
}

// TestForgottenProcessFreesTheWindow: its bytes in flight become available to other
// processes.
func TestForgottenProcessFreesTheWindow(t *testing.T) {
	s := &Shim{procs: make(map[string]*proc)}
	s.readable.L = &s.mu
	s.session = &session{s: s, flight: wire.WindowConn}
	s.session.wake.L = &s.mu
	for _, token := range []string{"full", "waiting"} {
		p := &proc{s: s, token: token}
		p.spool.resumed = true
		p.spool.push(entry{stream: 1, data: make([]byte, 1)})
		s.procs[token] = p
	}
	s.procs["full"].spool.send()
	if err := s.procs["full"].abandon(0); err != nil {
		t.Fatal(err)
	}
	if len(s.session.ready) != 1 || s.session.ready[0].token != "waiting" {
		t.Errorf("%d processes queued", len(s.session.ready))
	}
}
