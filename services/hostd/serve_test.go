package hostd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/millrace/events"
	"github.com/millrace/millrace/events/eventstest"
	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/process"
	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/services/hostd/internal/driver"
	"github.com/millrace/millrace/services/hostd/internal/link"
	"github.com/millrace/millrace/services/hostd/internal/wire"
)

// fakeInstance is an instance whose shim runs a function on each connection, after its Hello.
type place struct {
	driver.Instance
	version   uint32 // protocol version; 0: the newest
	processes []wire.Process
	shim      func(net.Conn)
}

func (p place) Dial(context.Context) (net.Conn, error) {
	ours, theirs := net.Pipe()
	go func() {
		defer theirs.Close()
		if _, _, err := wire.NewReader(theirs).Next(); err != nil {
			return
		}
		var hello []byte
		for _, hp := range p.processes {
			if hp.Moved != nil {
				hello = wire.AppendMoved(hello, hp.Moved)
			}
		}
		if _, err := theirs.Write(wire.AppendHello(hello, &wire.Hello{Version: p.version, Processes: p.processes})); err == nil {
			p.shim(theirs)
		}
	}()
	return ours, nil
}

func (place) Done() <-chan struct{} { return nil }

// A shim works without a spool file.
func TestConnectWithoutASpool(t *testing.T) {
	b := bare(&host{})
	b.h.cfg.DataDir = "/dev/null"
	b.inst = place{shim: quiet}
	conn, err := b.connect(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	conn.Close()
}

// instantSnapshot is an instance whose snapshot with memory takes no time.
type kept struct{ place }

func (kept) Snapshot(context.Context, string, bool) error { return nil }

// An instance is paused during a snapshot with memory: a shim that supports it receives the time
// afterwards, on the current connection and on the next.
func TestTheTimeIsToldAfterASnapshotOfTheMemory(t *testing.T) {
	for version, told := range map[uint32]int{wire.Version: 1, timeVersion - 1: 0} {
		t.Run(fmt.Sprint("in version ", version), func(t *testing.T) {
			b := bare(&host{})
			b.h.cfg.DataDir, b.h.cfg.Spool = t.TempDir(), -1
			times := make(chan int)
			b.inst = kept{place{version: version, shim: func(c net.Conn) {
				r, n := wire.NewReader(c), 0
				for {
					ty, _, err := r.Next()
					if err != nil || ty == wire.TypeEnd {
						times <- n
						return
					}
					if ty == wire.TypeTime {
						n++
					}
				}
			}}}
			for i, want := range []int{0, told, 2 * told} {
				conn, err := b.connect(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				if i > 0 {
					if err := b.fill(t.Context(), b.h.snapshotDir("s"), &events.TakeSnapshot{Memory: true, Internal: true}); err != nil {
						t.Fatal(err)
					}
				}
				conn.Send(wire.AppendEnd)
				if got := <-times; got != want {
					t.Errorf("connection %d: received the time %d times, want %d", i, got, want)
				}
				conn.Close()
			}
		})
	}
}

// A shim that closes each connection at once is not dialed in a busy loop.
func TestShimThatHangsUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const a = time.Minute
		ctx, cancel := context.WithTimeout(t.Context(), a)
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
		if got, most := dials.Load(), int64(a/maxPause)+10; got > most {
			t.Errorf("%d connections in %v, want at most %d", got, a, most)
		}
	})
}

// keeping is an instance that is paused for a snapshot of its memory.
type keeping struct {
	place
	until time.Time
}

func (k keeping) Dial(ctx context.Context) (net.Conn, error) {
	if !rest(ctx, time.Until(k.until)) {
		return nil, ctx.Err()
	}
	return k.place.Dial(ctx)
}

func (k keeping) Keeping(context.Context) bool { return time.Until(k.until) > 0 }

// A run of the host that ends during a snapshot with memory leaves an instance that does not
// answer until it is done. The next run waits for it, unless the sandbox must end; for other
// instances it does not.
func TestWhoseMemoryIsKeptIsWaitedFor(t *testing.T) {
	tests := []struct {
		name  string
		phase sandbox.Phase
		inst  func(keeping) driver.Instance
		took  time.Duration
		err   error
	}{
		{"a snapshot is made", sandbox.PhaseRunning, func(k keeping) driver.Instance { return k }, 4 * dialTimeout, nil},
		{"the sandbox must end", sandbox.PhaseStopping, func(k keeping) driver.Instance { return k }, dialTimeout, errShimGone},
		{"it does not answer", sandbox.PhaseRunning, func(k keeping) driver.Instance { return struct{ driver.Instance }{k} }, dialTimeout, errShimGone},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := bare(&host{})
				b.h.cfg.Spool = -1
				b.inst = tt.inst(keeping{place{shim: quiet}, time.Now().Add(4*dialTimeout - time.Second)})
				b.tell(&sandbox.State{ID: b.id, Phase: tt.phase})
				begun := time.Now()
				conn, err := b.connect(t.Context())
				if took := time.Since(begun); !errors.Is(err, tt.err) || took > tt.took {
					t.Errorf("%v after %v, want %v within %v", err, took, tt.err, tt.took)
				}
				if conn != nil {
					conn.Close()
				}
			})
		})
	}
}

// quiet receives everything and sends nothing.
func quiet(c net.Conn) { io.Copy(io.Discard, c) } //nolint:errcheck // until it is closed

// invented returns processes that were never started.
func invented(n int) []wire.Process {
	all := make([]wire.Process, n)
	for i := range all {
		all[i] = wire.Process{Token: process.NewID(sandbox.NewID()).Token(), First: 2, Last: 2}
	}
	return all
}

// withLog returns a sandbox of a host that has a log and a catalogue, for the duration of the
// test.
func known(t *testing.T) *box {
	t.Helper()
	log := eventstest.Open(t, eventstest.Start(t))
	life, end := context.WithCancel(t.Context())
	b := bare(&host{log: log, view: eventstest.View(t, log), life: life})
	b.h.cfg.Spool = -1
	t.Cleanup(func() {
		end()
		b.h.wg.Wait()
	})
	return b
}

// awaitNone waits until no invented process is left.
func awaitNone(t *testing.T, b *box) {
	t.Helper()
	b.mu.Lock()
	all := slices.Collect(maps.Values(b.procs))
	b.mu.Unlock()
	late := time.After(10 * time.Second)
	for _, p := range all {
		select {
		case <-p.done:
		case <-late:
			t.Fatalf("%d processes left, %d unknown ones counted", b.count(), b.strangers)
		}
	}
}

// A shim may list processes that were never started. Up to the limit they are looked up, and none
// of them stays; beyond it the shim violates the protocol.
func TestShimThatInventsProcesses(t *testing.T) {
	b := known(t)
	b.inst = place{shim: quiet, processes: invented(100)}
	conn, err := b.connect(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	awaitNone(t, b)
	b.inst = place{shim: quiet, processes: invented(maxStrangers + 1)}
	if _, err := b.connect(t.Context()); !errors.Is(err, link.ErrHostile) {
		t.Error(err)
	}
	if b.count() > maxStrangers {
		t.Errorf("%d processes", b.count())
	}
}

// Only the first Hello of a sandbox may have processes restored with the memory.
func TestShimThatMovesProcessesLater(t *testing.T) {
	b := known(t)
	b.req.From, b.req.FromSandbox = "snapshot", sandbox.NewID()
	late := invented(1)
	spec := sh("true")
	late[0].Moved = &wire.Moved{Token: late[0].Token, After: 2, Spec: process.AppendSpec(nil, &spec)}
	b.inst = place{shim: quiet, processes: late}
	conn, err := b.connect(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	awaitNone(t, b)
	id, err := process.ParseID(late[0].Token + "-" + string(b.id))
	if err != nil {
		t.Fatal(err)
	}
	if tip, err := b.h.log.Writer(events.Ref{Host: hostName, ID: id}, 3).Recover(t.Context()); !kind.Is(err, kind.NotFound) {
		t.Errorf("it has a record: %+v, %v", tip, err)
	}
}

// commanded returns a sandbox whose host dispatches commands to its one process.
func commanded() (*box, *proc) {
	b := bare(&host{})
	b.h.boxes = map[sandbox.ID]*box{b.id: b}
	b.passing = true
	p := silent(b)
	p.sent = true
	b.procs[p.id.Token()] = p
	return b, p
}

// Commands for a sandbox whose shim accepts none are refused beyond a limit, also while its
// processes are not known yet.
func TestShimThatTakesNoInput(t *testing.T) {
	for name, passing := range map[string]bool{"connected": true, "not connected yet": false} {
		t.Run(name, func(t *testing.T) {
			b, p := commanded()
			b.passing = passing
			var rev uint64
			send := func() {
				rev++
				b.h.cursor.begin(rev)
				in := events.Stdin{Data: make([]byte, 128<<10)}
				b.h.dispatch(events.Command{ID: fmt.Sprint(rev), Process: p.id, Rev: rev, Body: in})
			}
			for range 2 * maxWaiting / (128 << 10) {
				send()
			}
			waiting := len(b.pending) + len(b.early)
			if held := b.waiting.Load(); held > maxWaiting || waiting*(128<<10) > maxWaiting/inputPart*(inputPart-1) || waiting < maxWaiting/2/(128<<10) {
				t.Fatalf("%d commands wait, %d bytes are counted", waiting, held)
			}
			b.passEarly()
			b.taken(1)
			if send(); b.pending[rev] == nil {
				t.Error("refused although one was accepted")
			}
			b.shut()
			if held := b.waiting.Load(); held != 0 || len(b.h.cursor.open) != 0 {
				t.Errorf("%d bytes are still counted, %d commands open", held, len(b.h.cursor.open))
			}
		})
	}
}

// Replies that a shim owes are bounded, too, as for input that its process never reads.
func TestShimThatAnswersNothing(t *testing.T) { synctest.Test(t, shimThatAnswersNothing) }

func shimThatAnswersNothing(t *testing.T) {
	b, p := commanded()
	now := time.Now()
	rev := uint64(0)
	send := func(deadline time.Time, body events.CommandBody) (passed bool) {
		rev++
		b.h.cursor.begin(rev)
		b.h.dispatch(events.Command{Process: p.id, Rev: rev, Deadline: deadline, Body: body})
		_, passed = b.pending[rev]
		b.taken(rev)
		return passed
	}
	soon := now.Add(5 * time.Second)
	for range 2 * maxPending {
		send(soon, events.Stdin{Data: []byte("x")})
	}
	if most := maxPending - maxPending/inputPart; len(b.pending) != most || b.waiting.Load() != 0 {
		t.Errorf("%d commands wait for an answer, %d bytes are counted", len(b.pending), b.waiting.Load())
	}
	if !send(soon, events.Signal{Signal: 9}) {
		t.Error("a process that does not read cannot be killed")
	}
	rest(t.Context(), 6*time.Second)
	if !send(time.Time{}, events.Stdin{Data: []byte("x")}) || len(b.pending) > 2 {
		t.Errorf("%d commands are kept after their senders gave up", len(b.pending))
	}
	// A shim may also report events that are never stored.
	now = time.Now()
	for i := range 1000 {
		p.replyAfter(1<<60, events.Command{Deadline: now.Add(-time.Second)}, events.Reply{})
		if i > 0 && len(p.answers) > 1 {
			t.Fatalf("%d expired answers are kept", len(p.answers))
		}
	}
}

// silent returns a process without a record.
func silent(b *box) *proc {
	return &proc{h: b.h, b: b, id: process.NewID(b.id), done: make(chan struct{}), wake: make(chan struct{}, 1)}
}

// Each process of a shim keeps to its window, and all of them together do not: what waits for the
// store is bounded per sandbox, and no longer counted when its processes are gone.
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

// A sandbox that was asked to end gets the time that storing its output takes, also while the log
// is unavailable, and no more.
func TestEndWaitsForWhatIsToBeStored(t *testing.T) {
	tests := []struct {
		name        string
		begin       func(ctx context.Context, b *box, p *proc)
		least, most time.Duration
	}{
		{"a silent shim", func(context.Context, *box, *proc) {}, 0, stopTimeout},
		{"a log that is unavailable for a minute", func(_ context.Context, b *box, _ *proc) {
			b.flow.Hold(1)
			time.AfterFunc(time.Minute, func() { b.flow.Hold(-1) })
		}, time.Minute, time.Minute + stopTimeout},
		{"endless output", func(ctx context.Context, b *box, p *proc) {
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
				b.inst = place{shim: quiet}
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

// A sandbox whose output takes too long to store is asked to conclude. Only if its shim does not
// support that is the rest of its output dropped.
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
							p.close()                      // its record has ended
							c.Write(wire.AppendEnded(nil)) //nolint:errcheck // hostd may have disconnected
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
