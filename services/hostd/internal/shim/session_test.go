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

// failing is a listener that gives errors, one after the other.
type failing struct {
	net.Listener
	errs []error
}

func (l *failing) Accept() (net.Conn, error) {
	err := l.errs[0]
	l.errs = l.errs[1:]
	return nil, err
}

// A shim that has no descriptor left for a connection can be reached when it has.
func TestAcceptGoesOnAfterAnError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ln := &failing{errs: []error{syscall.EMFILE, syscall.ECONNABORTED, net.ErrClosed}}
		(&Shim{cfg: Config{Listener: ln}}).accept()
		if len(ln.errs) > 0 {
			t.Errorf("it ended before %v", ln.errs)
		}
	})
}

// A session that has more to say than it may let wait reads no command until it has
// said it, and then goes on.
func TestReaderGoesOnWhenControlWasSent(t *testing.T) {
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
			t.Error("it waits for ever")
			s.mu.Lock()
			c.wake.Broadcast()
			s.mu.Unlock()
		}
	})
}

// A connection that was cut may still have a start to be read. It is not heard: whoever
// connected then knows nothing of that process.
func TestACutSessionStartsNothing(t *testing.T) {
	s := &Shim{procs: make(map[string]*proc), ending: true}
	spec := process.Spec{Cmd: "true"}
	start := wire.AppendStart(nil, &wire.Start{Token: "late", Spec: process.AppendSpec(nil, &spec)})
	for closed, want := range map[bool]int{true: 0, false: 1} {
		c := &session{s: s, closed: closed}
		c.wake.L = &s.mu
		c.read(wire.NewReader(bytes.NewReader(start)))
		if len(s.procs) != want {
			t.Errorf("cut %v: it has %d processes", closed, len(s.procs))
		}
		clear(s.procs)
	}
}

// What a process had in flight is room for others when nobody wants it any more.
func TestForgottenProcessMakesRoomInTheWindow(t *testing.T) {
	s := &Shim{procs: make(map[string]*proc)}
	s.room.L = &s.mu
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
		t.Errorf("%d in line", len(s.session.ready))
	}
}
