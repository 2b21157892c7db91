package session

import (
	"bytes"
	"net"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/millrace/services/hostd/internal/shim/internal/output"
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
		New(Config{}).Accept(ln)
		if len(ln.errs) > 0 {
			t.Errorf("accept ended before %v", ln.errs)
		}
	})
}

// counting is a sandbox that counts the frames that it handles.
type counting struct{ frames int }

func (*counting) Attach(_ *wire.Attach, install func([]byte)) { install(nil) }

func (s *counting) Handle(wire.Type, []byte) error {
	s.frames++
	return nil
}

// TestReaderContinuesWhenControlWasSent: a session with too many unsent control frames
// reads no command until they are sent, and then continues.
func TestReaderContinuesWhenControlWasSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var handled counting
		c := newSession(New(Config{Sandbox: &handled}), nil)
		c.control = make([]byte, maxControl+1)
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			c.read(wire.NewReader(bytes.NewReader(wire.AppendForget(nil, "unknown"))))
		}()
		synctest.Wait()
		if handled.frames > 0 {
			t.Error("a command was read")
		}
		output.New(output.Config{}).Collect(&output.Batch{}, c.takeControl)
		synctest.Wait()
		select {
		case <-ended:
		default:
			t.Error("the reader waits forever")
			c.wake.Broadcast()
		}
		if handled.frames != 1 {
			t.Errorf("%d commands were read", handled.frames)
		}
	})
}

// TestFlushSendsWhatIsQueued: flush returns when the peer has read the queued frames, and
// the writer has ended.
func TestFlushSendsWhatIsQueued(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ours, theirs := net.Pipe()
		defer theirs.Close()
		s := New(Config{Output: output.New(output.Config{})})
		c := newSession(s, ours)
		s.last = c
		c.wg.Add(1)
		s.Send(wire.AppendEnded)
		flushed := make(chan struct{})
		go func() {
			defer close(flushed)
			s.Flush(t.Context())
		}()
		synctest.Wait()
		select {
		case <-flushed:
			t.Error("it returned before anything was sent")
		default:
		}
		go c.write()
		if ty, _, err := wire.NewReader(theirs).Next(); ty != wire.TypeEnded || err != nil {
			t.Errorf("frame %d, %v", ty, err)
		}
		<-flushed
		c.wg.Wait()
	})
}

// TestFlushEndsWithTheConnection: nothing can be sent to a hostd that has disconnected.
func TestFlushEndsWithTheConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ours, theirs := net.Pipe()
		defer theirs.Close()
		s := New(Config{Output: output.New(output.Config{})})
		c := newSession(s, ours)
		s.last = c
		s.Send(wire.AppendEnded)
		c.wg.Add(1)
		go c.write()
		synctest.Wait() // nothing reads the other end
		go c.close()
		s.Flush(t.Context())
	})
}

// TestClosedSessionHandlesNothing: a closed connection may still have a start to read. It is
// ignored, since the next connection has already received the list of processes.
func TestClosedSessionHandlesNothing(t *testing.T) {
	for closed, want := range map[bool]int{true: 0, false: 1} {
		var handled counting
		c := newSession(New(Config{Sandbox: &handled}), nil)
		c.closed = closed
		c.read(wire.NewReader(bytes.NewReader(wire.AppendForget(nil, "late"))))
		if handled.frames != want {
			t.Errorf("closed %v: %d frames", closed, handled.frames)
		}
	}
}

// TestSendSoonTravelsWithTheNextFrame: a frame of SendSoon is written together with the next one, or
// alone when none follows for a while.
func TestSendSoonTravelsWithTheNextFrame(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ours, theirs := net.Pipe()
		s := New(Config{Output: output.New(output.Config{})})
		c := newSession(s, ours)
		s.last = c
		c.wg.Add(1)
		go c.write()
		writes := make(chan []byte, 8)
		go func() {
			defer close(writes)
			for {
				b := make([]byte, 1<<10)
				n, err := theirs.Read(b)
				if err != nil {
					return
				}
				writes <- b[:n]
			}
		}()
		reply := func(dst []byte) []byte { return wire.AppendReply(dst, &wire.Reply{Rev: 1}) }
		both := wire.AppendTaken(reply(nil), 2)
		synctest.Wait() // the writer waits
		s.SendSoon(reply)
		synctest.Wait()
		if len(writes) > 0 {
			t.Error("the frame was written at once")
		}
		s.Send(func(dst []byte) []byte { return wire.AppendTaken(dst, 2) })
		if got := <-writes; !bytes.Equal(got, both) {
			t.Errorf("got %x, want both frames, %x", got, both)
		}
		synctest.Wait()
		begun := time.Now()
		s.SendSoon(reply)
		if got, want := <-writes, reply(nil); !bytes.Equal(got, want) {
			t.Errorf("got %x, want the frame alone, %x", got, want)
		}
		if waited := time.Since(begun); waited != sendDelay {
			t.Errorf("the frame waited %v, want %v", waited, sendDelay)
		}
		c.close()
		theirs.Close()
		c.wg.Wait()
	})
}
