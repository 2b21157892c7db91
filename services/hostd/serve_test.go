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
	"github.com/millrace/millrace/internal/waiting"
	"github.com/millrace/millrace/services/hostd/internal/driver"
	"github.com/millrace/millrace/services/hostd/internal/link"
	"github.com/millrace/millrace/services/hostd/internal/wire"
)

// fakeInstance is an instance whose shim runs a function on each connection, after its Hello.
type fakeInstance struct {
	driver.Instance
	processes []wire.Process
	shim      func(net.Conn)
}

func (p fakeInstance) Dial(context.Context) (net.Conn, error) {
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
		if _, err := theirs.Write(wire.AppendHello(hello, &wire.Hello{Processes: p.processes})); err == nil {
			p.shim(theirs)
		}
	}()
	return ours, nil
}

func (fakeInstance) Done() <-chan struct{} { return nil }

// A shim works without a spool file.
func TestConnectWithoutASpool(t *testing.T) {
	sb := bare(&host{})
	sb.h.cfg.DataDir = "/dev/null"
	sb.current.inst = fakeInstance{shim: quiet}
	conn, err := sb.session.connect(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	conn.Close()
}

// A shim of another version of the protocol is given up at once.
func TestConnectToAShimOfAnotherVersion(t *testing.T) {
	sb := bare(&host{})
	sb.h.cfg.Spool = -1
	sb.current.inst = otherVersion{}
	if _, err := sb.session.connect(t.Context()); !errors.Is(err, wire.ErrVersion) {
		t.Errorf("%v, want %v", err, wire.ErrVersion)
	}
}

// otherVersion is an instance whose shim has another version of the protocol.
type otherVersion struct{ fakeInstance }

func (otherVersion) Dial(context.Context) (net.Conn, error) {
	ours, theirs := net.Pipe()
	go func() {
		defer theirs.Close()
		if _, _, err := wire.NewReader(theirs).Next(); err == nil {
			hello := wire.AppendHello(nil, &wire.Hello{})
			hello[8+4]++ // the version, after the frame's head and the protocol
			theirs.Write(hello)
		}
	}()
	return ours, nil
}

// instantSnapshot is an instance whose snapshot with memory takes no time.
type instantSnapshot struct{ fakeInstance }

func (instantSnapshot) Snapshot(context.Context, string, bool) error { return nil }

// An instance is paused during a snapshot with memory: its shim receives the time afterwards, on
// the current connection and on the next.
func TestTimeIsSentAfterASnapshotOfMemory(t *testing.T) {
	sb := bare(&host{})
	sb.h.cfg.DataDir, sb.h.cfg.Spool = t.TempDir(), -1
	times := make(chan int)
	sb.current.inst = instantSnapshot{fakeInstance{shim: func(c net.Conn) {
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
	for i, want := range []int{0, 1, 2} {
		conn, err := sb.session.connect(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if i > 0 {
			if err := sb.snapshots.write(t.Context(), sb.h.snapshotDir("s"), &events.TakeSnapshot{Memory: true, Internal: true}); err != nil {
				t.Fatal(err)
			}
		}
		conn.Send(wire.AppendEnd)
		if got := <-times; got != want {
			t.Errorf("connection %d: received the time %d times, want %d", i, got, want)
		}
		conn.Close()
	}
}

// A shim that closes each connection at once is not dialed in a busy loop.
func TestShimThatClosesEachConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const a = time.Minute
		ctx, cancel := context.WithTimeout(t.Context(), a)
		defer cancel()
		sb := bare(&host{})
		sb.h.cfg.Spool = -1
		var dials atomic.Int64
		sb.current.inst = fakeInstance{shim: func(net.Conn) {
			if dials.Add(1) > 1000 {
				cancel()
			}
		}}
		sb.serve(ctx) //nolint:errcheck // it ends with ctx
		sb.h.wg.Wait()
		if got, most := dials.Load(), int64(a/maxDialRetry)+10; got > most {
			t.Errorf("%d connections in %v, want at most %d", got, a, most)
		}
	})
}

// keeping is an instance that is paused for a snapshot of its memory.
type keeping struct {
	fakeInstance
	until time.Time
}

func (k keeping) Dial(ctx context.Context) (net.Conn, error) {
	if !waiting.Sleep(ctx, time.Until(k.until)) {
		return nil, ctx.Err()
	}
	return k.fakeInstance.Dial(ctx)
}

func (k keeping) Checkpointing(context.Context) bool { return time.Until(k.until) > 0 }

// A run of the host that ends during a snapshot with memory leaves an instance that does not
// answer until it is done. The next run waits for it, unless the sandbox must end; for other
// instances it does not.
func TestDialTimeoutDoesNotCountASnapshot(t *testing.T) {
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
				sb := bare(&host{})
				sb.h.cfg.Spool = -1
				sb.current.inst = tt.inst(keeping{fakeInstance{shim: quiet}, time.Now().Add(4*dialTimeout - time.Second)})
				sb.setDesired(&sandbox.State{ID: sb.id, Phase: tt.phase})
				begun := time.Now()
				conn, err := sb.session.connect(t.Context())
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
func withLog(t *testing.T) *hostSandbox {
	t.Helper()
	log := eventstest.Open(t, eventstest.Start(t))
	runCtx, end := context.WithCancel(t.Context())
	sb := bare(&host{log: log, view: eventstest.View(t, log), runCtx: runCtx})
	sb.h.cfg.Spool = -1
	t.Cleanup(func() {
		end()
		sb.h.wg.Wait()
	})
	return sb
}

// awaitNone waits until no invented process is left.
func awaitNone(t *testing.T, sb *hostSandbox) {
	t.Helper()
	sb.session.mu.Lock()
	all := slices.Collect(maps.Values(sb.session.procs))
	sb.session.mu.Unlock()
	late := time.After(10 * time.Second)
	for _, p := range all {
		select {
		case <-p.done:
		case <-late:
			t.Fatalf("%d processes left, %d unknown ones counted", sb.session.count(), sb.session.unknownProcs)
		}
	}
}

// A shim may list processes that were never started. Up to the limit they are looked up, and none
// of them stays; beyond it the shim violates the protocol.
func TestShimThatInventsProcesses(t *testing.T) {
	sb := withLog(t)
	sb.current.inst = fakeInstance{shim: quiet, processes: invented(100)}
	conn, err := sb.session.connect(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	awaitNone(t, sb)
	sb.current.inst = fakeInstance{shim: quiet, processes: invented(maxUnknown + 1)}
	if _, err := sb.session.connect(t.Context()); !errors.Is(err, link.ErrHostile) {
		t.Error(err)
	}
	if sb.session.count() > maxUnknown {
		t.Errorf("%d processes", sb.session.count())
	}
}

// Only the first Hello of a sandbox may have processes restored with the memory.
func TestShimThatRestoresProcessesLater(t *testing.T) {
	sb := withLog(t)
	sb.req.From, sb.req.FromSandbox = "snapshot", sandbox.NewID()
	late := invented(1)
	spec := sh("true")
	late[0].Moved = &wire.Moved{Token: late[0].Token, After: 2, Spec: process.AppendSpec(nil, &spec)}
	sb.current.inst = fakeInstance{shim: quiet, processes: late}
	conn, err := sb.session.connect(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	awaitNone(t, sb)
	id, err := process.ParseID(late[0].Token + "-" + string(sb.id))
	if err != nil {
		t.Fatal(err)
	}
	if tail, err := sb.h.log.Writer(events.Ref{Host: hostName, ID: id}, 3).Recover(t.Context()); !kind.Is(err, kind.NotFound) {
		t.Errorf("it has a record: %+v, %v", tail, err)
	}
}

// commanded returns a sandbox whose host dispatches commands to its one process.
func commanded() (*hostSandbox, *proc) {
	sb := bare(&host{})
	sb.h.sandboxes.byID = map[sandbox.ID]*hostSandbox{sb.id: sb}
	sb.commands.forwarding = true
	p := silent(sb)
	p.replies.sent = true
	sb.session.procs[p.id.Token()] = p
	return sb, p
}

// Commands for a sandbox whose shim accepts none are refused beyond a limit, also while its
// processes are not known yet.
func TestShimThatAcceptsNoInput(t *testing.T) {
	for name, passing := range map[string]bool{"connected": true, "not connected yet": false} {
		t.Run(name, func(t *testing.T) {
			sb, p := commanded()
			sb.commands.forwarding = passing
			var rev uint64
			send := func() {
				rev++
				sb.h.commands.cursor.Begin(rev)
				in := events.Stdin{Data: make([]byte, 128<<10)}
				sb.h.commands.dispatch(events.Command{ID: fmt.Sprint(rev), Process: p.id, Rev: rev, Body: in})
			}
			for range 2 * maxQueuedBytes / (128 << 10) {
				send()
			}
			waiting := len(sb.session.pending) + len(sb.commands.queue)
			if held := sb.commands.queuedBytes.Load(); held > maxQueuedBytes || waiting*(128<<10) > maxQueuedBytes/inputPart*(inputPart-1) || waiting < maxQueuedBytes/2/(128<<10) {
				t.Fatalf("%d commands wait, %d bytes are counted", waiting, held)
			}
			sb.commands.forwardQueued()
			sb.session.accepted(1)
			if send(); sb.session.pending[rev] == nil {
				t.Error("refused although one was accepted")
			}
			sb.session.shut()
			if held := sb.commands.queuedBytes.Load(); held != 0 || sb.h.commands.cursor.Position() != rev {
				t.Errorf("%d bytes are still counted, the cursor is at %d of %d", held, sb.h.commands.cursor.Position(), rev)
			}
		})
	}
}

// Replies that a shim owes are bounded, too, as for input that its process never reads.
func TestShimThatAnswersNothing(t *testing.T) { synctest.Test(t, shimThatAnswersNothing) }

func shimThatAnswersNothing(t *testing.T) {
	sb, p := commanded()
	now := time.Now()
	rev := uint64(0)
	send := func(deadline time.Time, body events.CommandBody) (passed bool) {
		rev++
		sb.h.commands.cursor.Begin(rev)
		sb.h.commands.dispatch(events.Command{Process: p.id, Rev: rev, Deadline: deadline, Body: body})
		_, passed = sb.session.pending[rev]
		sb.session.accepted(rev)
		return passed
	}
	soon := now.Add(5 * time.Second)
	for range 2 * maxPending {
		send(soon, events.Stdin{Data: []byte("x")})
	}
	if most := maxPending - maxPending/inputPart; len(sb.session.pending) != most || sb.commands.queuedBytes.Load() != 0 {
		t.Errorf("%d commands wait for an answer, %d bytes are counted", len(sb.session.pending), sb.commands.queuedBytes.Load())
	}
	if !send(soon, events.Signal{Signal: 9}) {
		t.Error("a process that does not read cannot be killed")
	}
	waiting.Sleep(t.Context(), 6*time.Second)
	if !send(time.Time{}, events.Stdin{Data: []byte("x")}) || len(sb.session.pending) > 2 {
		t.Errorf("%d commands are kept after their senders gave up", len(sb.session.pending))
	}
	// A shim may also report events that are never stored.
	now = time.Now()
	for i := range 1000 {
		p.replies.replyAfter(1<<60, events.Command{Deadline: now.Add(-time.Second)}, events.Reply{})
		if i > 0 && len(p.replies.answers) > 1 {
			t.Fatalf("%d expired answers are kept", len(p.replies.answers))
		}
	}
}

// silent returns a process without a record.
func silent(sb *hostSandbox) *proc {
	p := &proc{h: sb.h, sb: sb, id: process.NewID(sb.id), done: make(chan struct{}), wake: make(chan struct{}, 1)}
	p.assemble()
	return p
}

// Each process of a shim keeps to its window, and all of them together do not: what waits for the
// store is bounded per sandbox, and no longer counted when its processes are gone.
func TestWindowOfASandbox(t *testing.T) {
	sb := bare(&host{})
	var procs []*proc
	var err error
	for taken := 0; err == nil; {
		if taken > 2*maxHeld {
			t.Fatalf("%d bytes were taken", taken)
		}
		p := silent(sb)
		p.inbox.track = &link.Track{}
		p.inbox.track.Resume(2)
		procs = append(procs, p)
		e := process.Event{Seq: 3, Time: time.Now(), Body: process.Wrote{Stream: process.Stdout, Data: make([]byte, wire.WindowProcess)}}
		err = p.inbox.take(&link.Message{Event: e})
		taken += link.Cost(&e)
	}
	if !errors.Is(err, link.ErrHostile) {
		t.Error(err)
	}
	for _, p := range procs {
		p.close()
	}
	if held := sb.flow.AddPending(0); held != 0 {
		t.Errorf("%d bytes are still counted", held)
	}
}

// A sandbox that was asked to end gets the time that storing its output takes, also while the log
// is unavailable, and no more.
func TestEndWaitsForOutputToBeStored(t *testing.T) {
	tests := []struct {
		name        string
		begin       func(ctx context.Context, sb *hostSandbox, p *proc)
		least, most time.Duration
	}{
		{"a silent shim", func(context.Context, *hostSandbox, *proc) {}, 0, stopTimeout},
		{"a log that is unavailable for a minute", func(_ context.Context, sb *hostSandbox, _ *proc) {
			sb.flow.AddPending(1)
			time.AfterFunc(time.Minute, func() { sb.flow.AddPending(-1) })
		}, time.Minute, time.Minute + stopTimeout},
		{"endless output", func(ctx context.Context, sb *hostSandbox, p *proc) {
			sb.h.wg.Go(func() {
				for waiting.Sleep(ctx, time.Second) {
					p.replies.settled(p.stored + 1)
				}
			})
		}, maxExtensions * stopTimeout, (maxExtensions + concludeExtensions + 1) * stopTimeout},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				sb := bare(&host{})
				sb.h.cfg.Spool = -1
				sb.current.inst = fakeInstance{shim: quiet}
				p := silent(sb)
				sb.session.procs[p.id.Token()] = p
				sb.setDesired(&sandbox.State{ID: sb.id, Phase: sandbox.PhaseStopping})
				ctx, cancel := context.WithCancel(t.Context())
				tt.begin(ctx, sb, p)
				begun := time.Now()
				err := sb.serve(ctx)
				if took := time.Since(begun); err != nil || took < tt.least || took > tt.most {
					t.Errorf("ended after %v with %v, want %v to %v", took, err, tt.least, tt.most)
				}
				cancel()
				sb.h.wg.Wait()
			})
		})
	}
}

// A sandbox whose output takes too long to store is asked to conclude. Only if its shim does not
// do that is the rest of its output dropped.
func TestEndThatTakesTooLongIsConcluded(t *testing.T) {
	for _, obeys := range []bool{true, false} {
		t.Run(fmt.Sprint("obeys ", obeys), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				sb := bare(&host{})
				sb.h.cfg.Spool = -1
				p := silent(sb)
				sb.session.procs[p.id.Token()] = p
				sb.current.inst = fakeInstance{shim: func(c net.Conn) {
					r := wire.NewReader(c)
					for {
						switch ty, _, err := r.Next(); {
						case err != nil:
							return
						case ty == wire.TypeConclude && obeys:
							p.close()                      // its record has ended
							c.Write(wire.AppendEnded(nil)) //nolint:errcheck // hostd may have disconnected
						}
					}
				}}
				sb.setDesired(&sandbox.State{ID: sb.id, Phase: sandbox.PhaseStopping})
				ctx, cancel := context.WithCancel(t.Context())
				sb.h.wg.Go(func() {
					for waiting.Sleep(ctx, time.Second) {
						p.replies.settled(p.stored + 1)
					}
				})
				begun := time.Now()
				err := sb.serve(ctx)
				if took := time.Since(begun); err != nil || sb.session.truncated == obeys || took > (maxExtensions+concludeExtensions+1)*stopTimeout {
					t.Errorf("ended after %v with %v, cut: %v", took, err, sb.session.truncated)
				}
				cancel()
				sb.h.wg.Wait()
			})
		})
	}
}
