package hostd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/millrace/events/process"
	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/services/hostd/internal/driver"
	"github.com/millrace/millrace/services/hostd/internal/link"
	"github.com/millrace/millrace/services/hostd/internal/wire"
)

// place is one whose shim does as it is told with each connection, after its Hello.
type place struct {
	driver.Instance
	version uint32 // of the talk; 0: the newest
	shim    func(net.Conn)
}

func (p place) Dial(context.Context) (net.Conn, error) {
	ours, theirs := net.Pipe()
	go func() {
		defer theirs.Close()
		if _, _, err := wire.NewReader(theirs).Next(); err != nil {
			return
		}
		if _, err := theirs.Write(wire.AppendHello(nil, &wire.Hello{Version: p.version})); err == nil {
			p.shim(theirs)
		}
	}()
	return ours, nil
}

func (place) Done() <-chan struct{} { return nil }

// The file that a spool may go to is wanted, not needed.
func TestConnectWithoutASpool(t *testing.T) {
	b := bare(&host{})
	b.h.cfg.DataDir = "/dev/null"
	b.inst = place{shim: func(c net.Conn) { io.Copy(io.Discard, c) }} //nolint:errcheck // until it is closed
	conn, err := b.connect(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	conn.Close()
}

// A shim that hangs up as soon as it is connected keeps nobody busy.
func TestShimThatHangsUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		b := bare(&host{})
		b.h.cfg.Spool = -1
		var dials atomic.Int64
		b.inst = place{shim: func(net.Conn) {
			if dials.Add(1) > 1000 {
				cancel()
			}
		}}
		b.serve(ctx) //nolint:errcheck // it ends with ctx
		b.h.wg.Wait()
		if got, most := dials.Load(), int64(time.Second/dialPause)+1; got > most {
			t.Errorf("%d connections in a second, want at most %d", got, most)
		}
	})
}

// silent is a process of which nothing is recorded.
func silent(b *box) *proc {
	return &proc{h: b.h, b: b, id: process.NewID(b.id), done: make(chan struct{}), wake: make(chan struct{}, 1)}
}

// Each process of a shim keeps to its window, and all of them do not: what waits of a
// sandbox is bounded, and no more is counted when its processes are gone.
func TestWindowOfASandbox(t *testing.T) {
	b := bare(&host{})
	var procs []*proc
	var err error
	for taken := 0; err == nil; {
		if taken > 2*maxHeld {
			t.Fatalf("%d bytes were taken", taken)
		}
		p := silent(b)
		p.track = &link.Track{}
		p.track.Resume(2)
		procs = append(procs, p)
		e := process.Event{Seq: 3, Time: time.Now(), Body: process.Wrote{Stream: process.Stdout, Data: make([]byte, wire.WindowProcess)}}
		err = p.take(&link.Message{Event: e})
		taken += link.Cost(&e)
	}
	if !errors.Is(err, link.ErrHostile) {
		t.Error(err)
	}
	for _, p := range procs {
		p.close()
	}
	if held := b.flow.Hold(0); held != 0 {
		t.Errorf("%d bytes are still counted", held)
	}
}

// A sandbox that is asked to end is given the time that its output takes to be stored,
// also while the log is away, and no other.
func TestEndWaitsForWhatIsToBeStored(t *testing.T) {
	tests := []struct {
		name        string
		begin       func(ctx context.Context, b *box, p *proc)
		least, most time.Duration
	}{
		{"a shim that says nothing", func(context.Context, *box, *proc) {}, 0, stopTimeout},
		{"a log that is away for a minute", func(_ context.Context, b *box, _ *proc) {
			b.flow.Hold(1)
			time.AfterFunc(time.Minute, func() { b.flow.Hold(-1) })
		}, time.Minute, time.Minute + stopTimeout},
		{"output without end", func(ctx context.Context, b *box, p *proc) {
			b.h.wg.Go(func() {
				for rest(ctx, time.Second) {
					p.settled(p.stored + 1)
				}
			})
		}, maxRemains * stopTimeout, (maxRemains + lastRemains + 1) * stopTimeout},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := bare(&host{})
				b.h.cfg.Spool = -1
				b.inst = place{shim: func(c net.Conn) { io.Copy(io.Discard, c) }} //nolint:errcheck // until it is closed
				p := silent(b)
				b.procs[p.id.Token()] = p
				b.tell(&sandbox.State{ID: b.id, Phase: sandbox.PhaseStopping})
				ctx, cancel := context.WithCancel(t.Context())
				tt.begin(ctx, b, p)
				begun := time.Now()
				err := b.serve(ctx)
				if took := time.Since(begun); err != nil || took < tt.least || took > tt.most {
					t.Errorf("ended after %v with %v, want %v to %v", took, err, tt.least, tt.most)
				}
				cancel()
				b.h.wg.Wait()
			})
		})
	}
}

// A sandbox that has more to say than it has time for is told to come to an end, and only
// where its shim cannot do that is the rest of its records not listened to.
func TestAnEndThatTakesTooLongIsCutShort(t *testing.T) {
	for version, told := range map[uint32]bool{wire.Version: true, concludeVersion - 1: false} {
		t.Run(fmt.Sprint("in version ", version), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := bare(&host{})
				b.h.cfg.Spool = -1
				p := silent(b)
				b.procs[p.id.Token()] = p
				b.inst = place{version: version, shim: func(c net.Conn) {
					r := wire.NewReader(c)
					for {
						switch ty, _, err := r.Next(); {
						case err != nil:
							return
						case ty == wire.TypeConclude:
							p.close()                      // its record has its end
							c.Write(wire.AppendEnded(nil)) //nolint:errcheck // then it is not heard
						}
					}
				}}
				b.tell(&sandbox.State{ID: b.id, Phase: sandbox.PhaseStopping})
				ctx, cancel := context.WithCancel(t.Context())
				b.h.wg.Go(func() {
					for rest(ctx, time.Second) {
						p.settled(p.stored + 1)
					}
				})
				begun := time.Now()
				err := b.serve(ctx)
				if took := time.Since(begun); err != nil || b.cut == told || took > (maxRemains+1)*stopTimeout {
					t.Errorf("ended after %v with %v, cut: %v", took, err, b.cut)
				}
				cancel()
				b.h.wg.Wait()
			})
		})
	}
}
