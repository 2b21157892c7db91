package session

import (
	"testing"
	"time"

	"github.com/millrace/millrace/events/process"
	"github.com/millrace/millrace/events/record"
	"github.com/millrace/millrace/services/hostd/internal/link"
	"github.com/millrace/millrace/services/hostd/internal/wire"
)

// leftBehind returns a process of which the previous run recorded the given events, and which the
// shim lists as known. If entered is set, the catalog has it, too.
func leftBehind(t *testing.T, entered bool, known wire.Process, recorded ...process.Body) (*bench, *proc) {
	t.Helper()
	b := withLog(t, nil)
	log := b.h.cfg.Log
	p := b.h.newProc(b.Session, process.NewID(b.cfg.ID))
	known.Token = p.id.Token()
	p.known, b.procs[known.Token] = &known, p
	w := log.Writer(p.ref, 1)
	for _, body := range recorded { // one message each
		e := process.Event{Seq: w.Last() + 1, Time: time.Now(), Body: body}
		if err := w.Append(t.Context(), []process.Event{e}); err != nil {
			t.Fatal(err)
		}
	}
	if entered {
		sum := process.Summary{ID: p.id, Tenant: tenant, Host: hostName, Epoch: 1, Spec: sh("x"), PID: 7, Started: time.Now()}
		if _, err := log.PutSummary(t.Context(), &sum, 0); err != nil {
			t.Fatal(err)
		}
	}
	if err := b.h.cfg.View.Sync(t.Context()); err != nil {
		t.Fatal(err)
	}
	return b, p
}

func exitedWith(x process.Exit, code int32) bool {
	return x.Cause == process.CauseExited && x.Code != nil && *x.Code == code
}

func accepted() process.Accepted { return process.Accepted{Spec: sh("x"), Tenant: tenant} }

// The seqs of a process come from its shim. A gap larger than any log can have lost is not
// filled: the process is given up, and its record ends.
func TestImpossibleGapEndsTheRecord(t *testing.T) {
	for name, entered := range map[string]bool{"record was read": false, "tail was assumed": true} {
		t.Run(name, func(t *testing.T) {
			b, p := leftBehind(t, entered, wire.Process{First: 1 << 42, Last: 1 << 42}, accepted(), process.Started{PID: 7})
			p.lose(process.Exit{Cause: process.CauseShimLost})
			if err := p.resume(t.Context()); err != nil {
				t.Error(err)
			}
			if all, end := b.whole(t, p.id); len(all) != 4 || end.Cause != process.CauseShimLost {
				t.Errorf("%d events, %s", len(all), end.Cause)
			}
		})
	}
}

// If a previous run recorded the exit of a process, and after it only output of its children, the
// exit stands.
func TestExitOfAPreviousRunStands(t *testing.T) {
	code := int32(0)
	exit := process.Exit{Code: &code, Cause: process.CauseExited}
	recorded := []process.Body{accepted(), process.Started{PID: 7}, process.Exited{Exit: exit}}
	for i := range 100 {
		recorded = append(recorded, process.Wrote{Stream: process.Stdout, Offset: uint64(i), Data: []byte("x")})
	}
	for name, more := range map[string]bool{"more output": true, "no more output": false} {
		t.Run(name, func(t *testing.T) {
			b, p := leftBehind(t, true, wire.Process{First: 104, Last: 104}, recorded...)
			if !p.assumeTail() {
				t.Fatal("the tail was not assumed")
			}
			want := len(recorded) + 1
			if more {
				want++
				late := process.Event{Seq: 104, Time: time.Now(), Body: process.Wrote{Stream: process.Stdout, Offset: 100, Data: []byte("x")}}
				if err := p.inbox.take(&link.Message{Event: late}); err != nil {
					t.Fatal(err)
				}
			}
			p.lose(process.Exit{Cause: process.CauseShimLost})
			if err := p.publish(t.Context()); err != nil {
				t.Fatal(err)
			}
			if all, end := b.whole(t, p.id); len(all) != want || !exitedWith(end, 0) {
				t.Errorf("%d events, want %d: %+v", len(all), want, end)
			}
		})
	}
}

// An exit that a previous run had in flight may be stored while this run ends the record: the
// observed exit stands.
func TestExitThatIsStoredLateStands(t *testing.T) {
	code := int32(3)
	b, p := leftBehind(t, true, wire.Process{}, accepted(), process.Started{PID: 7})
	if err := p.entry.read(t.Context()); err != nil {
		t.Fatal(err)
	}
	before := b.h.cfg.Log.Writer(p.ref, 1)
	for _, w := range []*record.Writer{p.w, before} {
		if _, err := w.Recover(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	late := process.Event{Seq: 3, Time: time.Now(), Body: process.Exited{Exit: process.Exit{Code: &code, Cause: process.CauseExited}}}
	if err := before.Append(t.Context(), []process.Event{late}); err != nil {
		t.Fatal(err)
	}
	if err := p.end(t.Context(), process.Exit{Cause: process.CauseShimLost}); err != nil {
		t.Fatal(err)
	}
	if all, end := b.whole(t, p.id); len(all) != 4 || !exitedWith(end, 3) {
		t.Errorf("%d events: %+v", len(all), end)
	}
	if err := b.h.cfg.View.Sync(t.Context()); err != nil {
		t.Fatal(err)
	}
	if sum, _, ok := b.h.cfg.View.Process(p.id); !ok || sum.Exit == nil || !exitedWith(*sum.Exit, 3) {
		t.Errorf("catalog: %+v", sum.Exit)
	}
}

// A shim may invent any number of processes; none of them is remembered.
func TestInventedProcessIsNotRemembered(t *testing.T) {
	_, p := leftBehind(t, false, wire.Process{First: 2, Last: 2})
	if err := p.resume(t.Context()); err != nil {
		t.Error(err)
	}
	if len(p.ss.procs) != 0 || len(p.ss.forgotten) != 0 {
		t.Errorf("%d processes and %d forgotten ones are remembered", len(p.ss.procs), len(p.ss.forgotten))
	}
}
