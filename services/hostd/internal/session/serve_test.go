package session

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/millrace/events/command"
	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/process"
	"github.com/millrace/millrace/events/record"
	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/internal/waiting"
	"github.com/millrace/millrace/services/hostd/internal/driver"
	"github.com/millrace/millrace/services/hostd/internal/link"
	"github.com/millrace/millrace/services/hostd/internal/wire"
)

// A shim works without a spool file.
func TestConnectWithoutASpool(t *testing.T) {
	sb := bare(t.Context(), fakeInstance{shim: quiet})
	sb.cfg.Spool = func() (*os.File, error) { return nil, errors.New("no space") }
	conn, err := sb.connect(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	conn.Close()
}

// A shim of another version of the protocol is given up at once.
func TestConnectToAShimOfAnotherVersion(t *testing.T) {
	sb := bare(t.Context(), otherVersion{})
	if _, err := sb.connect(t.Context()); !errors.Is(err, wire.ErrVersion) {
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

// After a pause of the instance its shim receives the time, on the current connection and on the
// next.
func TestTimeIsSentAfterAPause(t *testing.T) {
	times := make(chan int)
	sb := bare(t.Context(), fakeInstance{shim: func(c net.Conn) {
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
	}})
	for i, want := range []int{0, 1, 2} {
		conn, err := sb.connect(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if i > 0 {
			sb.SyncClock()
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
		var dials atomic.Int64
		sb := bare(ctx, fakeInstance{shim: func(net.Conn) {
			if dials.Add(1) > 1000 {
				cancel()
			}
		}})
		sb.serve(ctx)
		sb.wg.Wait()
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
		name   string
		ending bool
		inst   func(keeping) driver.Instance
		took   time.Duration
		err    error
	}{
		{"a snapshot is made", false, func(k keeping) driver.Instance { return k }, 4 * DialTimeout, nil},
		{"the sandbox must end", true, func(k keeping) driver.Instance { return k }, DialTimeout, ErrShimGone},
		{"it does not answer", false, func(k keeping) driver.Instance { return struct{ driver.Instance }{k} }, DialTimeout, ErrShimGone},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				sb := bare(t.Context(), tt.inst(keeping{fakeInstance{shim: quiet}, time.Now().Add(4*DialTimeout - time.Second)}))
				if tt.ending {
					close(sb.stop)
				}
				begun := time.Now()
				conn, err := sb.connect(t.Context())
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

// invented returns processes that were never started.
func invented(n int) []wire.Process {
	all := make([]wire.Process, n)
	for i := range all {
		all[i] = wire.Process{Token: process.NewID(sandbox.NewID()).Token(), First: 2, Last: 2}
	}
	return all
}

// awaitNone waits until no invented process is left.
func awaitNone(t *testing.T, sb *bench) {
	t.Helper()
	sb.mu.Lock()
	all := slices.Collect(maps.Values(sb.procs))
	sb.mu.Unlock()
	late := time.After(time.Minute)
	for _, p := range all {
		select {
		case <-p.done:
		case <-late:
			t.Fatalf("%d processes left, %d unknown ones counted", sb.Count(), sb.unknownProcs)
		}
	}
}

// A shim may list processes that were never started. Up to the limit they are looked up, and none
// of them stays; beyond it the shim violates the protocol.
func TestShimThatInventsProcesses(t *testing.T) {
	inst := fakeInstance{shim: quiet, processes: invented(100)}
	sb := withLog(t, nil)
	sb.cfg.Instance = func() driver.Instance { return inst }
	conn, err := sb.connect(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	awaitNone(t, sb)
	inst.processes = invented(maxUnknown + 1)
	if _, err := sb.connect(t.Context()); !errors.Is(err, link.ErrHostile) {
		t.Error(err)
	}
	if sb.Count() > maxUnknown {
		t.Errorf("%d processes", sb.Count())
	}
}

// Only the first Hello of a sandbox may have processes restored with the memory.
func TestShimThatRestoresProcessesLater(t *testing.T) {
	late := invented(1)
	spec := sh("true")
	late[0].Moved = &wire.Moved{Token: late[0].Token, After: 2, Spec: process.AppendSpec(nil, &spec)}
	sb := withLog(t, fakeInstance{shim: quiet, processes: late})
	sb.cfg.From, sb.cfg.FromSandbox = "snapshot", sandbox.NewID()
	conn, err := sb.connect(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	awaitNone(t, sb)
	id, err := process.ParseID(late[0].Token + "-" + string(sb.cfg.ID))
	if err != nil {
		t.Fatal(err)
	}
	if tail, err := sb.h.cfg.Log.Writer(record.Ref{Host: hostName, ID: id}, 3).Recover(t.Context()); !kind.Is(err, kind.NotFound) {
		t.Errorf("it has a record: %+v, %v", tail, err)
	}
}

// Commands for a sandbox whose shim accepts none are refused beyond a limit, also while its
// processes are not known yet.
func TestShimThatAcceptsNoInput(t *testing.T) {
	for name, passing := range map[string]bool{"connected": true, "not connected yet": false} {
		t.Run(name, func(t *testing.T) {
			sb := bare(t.Context(), nil)
			p := sb.known()
			if sb.queue.start(p); passing {
				sb.queue.openUp()
			}
			var rev uint64
			send := func() {
				rev++
				sb.commands.Begin(rev)
				in := command.Stdin{Data: make([]byte, 128<<10)}
				sb.Deliver(command.Command{ID: fmt.Sprint(rev), Process: p.id, Rev: rev, Body: in})
			}
			for range 2 * MaxQueuedBytes / (128 << 10) {
				send()
			}
			waiting := len(sb.pending) + len(sb.queue.waiting[p.id.Token()])
			if held := sb.queue.bytes.Load(); held > MaxQueuedBytes || waiting*(128<<10) > MaxQueuedBytes/inputPart*(inputPart-1) || waiting < MaxQueuedBytes/2/(128<<10) {
				t.Fatalf("%d commands wait, %d bytes are counted", waiting, held)
			}
			sb.queue.openUp()
			sb.accepted(1)
			if send(); sb.pending[rev] == nil {
				t.Error("refused although one was accepted")
			}
			sb.Shut()
			if held := sb.queue.bytes.Load(); held != 0 || sb.commands.Position() != rev {
				t.Errorf("%d bytes are still counted, the cursor is at %d of %d", held, sb.commands.Position(), rev)
			}
		})
	}
}

// Replies that a shim owes are bounded, too, as for input that its process never reads.
func TestShimThatAnswersNothing(t *testing.T) { synctest.Test(t, shimThatAnswersNothing) }

func shimThatAnswersNothing(t *testing.T) {
	sb := bare(t.Context(), nil)
	p := sb.known()
	sb.queue.start(p)
	sb.queue.openUp()
	now := time.Now()
	rev := uint64(0)
	send := func(deadline time.Time, body command.Body) (passed bool) {
		rev++
		sb.commands.Begin(rev)
		sb.Deliver(command.Command{Process: p.id, Rev: rev, Deadline: deadline, Body: body})
		_, passed = sb.pending[rev]
		sb.accepted(rev)
		return passed
	}
	soon := now.Add(5 * time.Second)
	for range 2 * maxPending {
		send(soon, command.Stdin{Data: []byte("x")})
	}
	if most := maxPending - maxPending/inputPart; len(sb.pending) != most || sb.queue.bytes.Load() != 0 {
		t.Errorf("%d commands wait for an answer, %d bytes are counted", len(sb.pending), sb.queue.bytes.Load())
	}
	if !send(soon, command.Signal{Signal: 9}) {
		t.Error("a process that does not read cannot be killed")
	}
	waiting.Sleep(t.Context(), 6*time.Second)
	if !send(time.Time{}, command.Stdin{Data: []byte("x")}) || len(sb.pending) > 2 {
		t.Errorf("%d commands are kept after their senders gave up", len(sb.pending))
	}
	// A shim may also report events that are never stored.
	now = time.Now()
	for i := range 1000 {
		p.replies.replyAfter(1<<60, command.Command{Deadline: now.Add(-time.Second)}, command.Reply{})
		if i > 0 && len(p.replies.answers) > 1 {
			t.Fatalf("%d expired answers are kept", len(p.replies.answers))
		}
	}
}

// Each process of a shim keeps to its window, and all of them together do not: what waits for the
// store is bounded per sandbox, and no longer counted when its processes are gone.
func TestWindowOfASandbox(t *testing.T) {
	sb := bare(t.Context(), nil)
	var procs []*proc
	var err error
	for taken := 0; err == nil; {
		if taken > 2*maxHeld {
			t.Fatalf("%d bytes were taken", taken)
		}
		p := sb.silent()
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
		begin       func(ctx context.Context, sb *bench, p *proc)
		least, most time.Duration
	}{
		{"a silent shim", func(context.Context, *bench, *proc) {}, 0, stopTimeout},
		{"a log that is unavailable for a minute", func(_ context.Context, sb *bench, _ *proc) {
			sb.flow.AddPending(1)
			time.AfterFunc(time.Minute, func() { sb.flow.AddPending(-1) })
		}, time.Minute, time.Minute + stopTimeout},
		{"endless output", func(ctx context.Context, sb *bench, p *proc) {
			sb.wg.Go(func() {
				for waiting.Sleep(ctx, time.Second) {
					p.replies.settled(p.stored + 1)
				}
			})
		}, maxExtensions * stopTimeout, (maxExtensions + concludeExtensions + 1) * stopTimeout},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				sb := bare(ctx, fakeInstance{shim: quiet})
				p := sb.known()
				close(sb.stop)
				tt.begin(ctx, sb, p)
				begun := time.Now()
				err := sb.serve(ctx)
				if took := time.Since(begun); err != nil || took < tt.least || took > tt.most {
					t.Errorf("ended after %v with %v, want %v to %v", took, err, tt.least, tt.most)
				}
				cancel()
				sb.wg.Wait()
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
				ctx, cancel := context.WithCancel(t.Context())
				var p *proc
				sb := bare(ctx, fakeInstance{shim: func(c net.Conn) {
					r := wire.NewReader(c)
					for {
						switch ty, _, err := r.Next(); {
						case err != nil:
							return
						case ty == wire.TypeConclude && obeys:
							p.close() // its record has ended
							c.Write(wire.AppendEnded(nil))
						}
					}
				}})
				p = sb.known()
				close(sb.stop)
				sb.wg.Go(func() {
					for waiting.Sleep(ctx, time.Second) {
						p.replies.settled(p.stored + 1)
					}
				})
				begun := time.Now()
				err := sb.serve(ctx)
				if took := time.Since(begun); err != nil || sb.truncated == obeys || took > (maxExtensions+concludeExtensions+1)*stopTimeout {
					t.Errorf("ended after %v with %v, cut: %v", took, err, sb.truncated)
				}
				cancel()
				sb.wg.Wait()
			})
		})
	}
}
