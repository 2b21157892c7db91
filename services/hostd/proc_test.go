package hostd

import (
	"log/slog"
	"testing"
	"time"

	"github.com/millrace/millrace/events"
	"github.com/millrace/millrace/events/eventstest"
	"github.com/millrace/millrace/events/process"
	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/services/hostd/internal/cursor"
	"github.com/millrace/millrace/services/hostd/internal/link"
	"github.com/millrace/millrace/services/hostd/internal/wire"
)

// bare returns a sandbox of a host with nothing else.
func bare(h *host) *hostSandbox {
	h.cfg.Name, h.slog, h.epoch, h.commands.cursor = hostName, slog.New(slog.DiscardHandler), 2, cursor.New(0)
	if h.log == nil {
		h.log = new(events.Log) // it sends nothing
	}
	h.assemble()
	if h.view != nil {
		h.useView()
	}
	return newSandbox(h, &sandbox.State{ID: sandbox.NewID(), Phase: sandbox.PhaseRunning})
}

// leftBehind returns a process of which the previous run recorded the given events, and which the
// shim lists as known. If entered is set, the catalogue has it, too.
func leftBehind(t *testing.T, entered bool, known wire.Process, recorded ...process.Body) (*rig, *proc) {
	t.Helper()
	srv := eventstest.Start(t)
	r := &rig{t: t, srv: srv, log: eventstest.Open(t, srv), cfg: Config{Name: hostName}}
	r.view = eventstest.View(t, r.log)
	sb := bare(&host{log: r.log, view: r.view, runCtx: t.Context()})
	p := sb.h.newProc(sb, process.NewID(sb.id))
	known.Token = p.id.Token()
	p.known, sb.session.procs[known.Token] = &known, p
	w := r.log.Writer(p.ref, 1)
	for _, body := range recorded { // one message each
		e := process.Event{Seq: w.Last() + 1, Time: time.Now(), Body: body}
		if err := w.Append(r.ctx(), []process.Event{e}); err != nil {
			t.Fatal(err)
		}
	}
	if entered {
		sum := process.Summary{ID: p.id, Tenant: tenant, Host: hostName, Epoch: 1, Spec: sh("x"), PID: 7, Started: time.Now()}
		if _, err := r.log.PutSummary(r.ctx(), &sum, 0); err != nil {
			t.Fatal(err)
		}
	}
	if err := r.view.Sync(r.ctx()); err != nil {
		t.Fatal(err)
	}
	return r, p
}

func accepted() process.Accepted { return process.Accepted{Spec: sh("x"), Tenant: tenant} }

// The seqs of a process come from its shim. A gap larger than any log can have lost is not
// filled: the process is given up, and its record ends.
func TestImpossibleGapEndsTheRecord(t *testing.T) {
	for name, entered := range map[string]bool{"record was read": false, "tail was assumed": true} {
		t.Run(name, func(t *testing.T) {
			r, p := leftBehind(t, entered, wire.Process{First: 1 << 42, Last: 1 << 42}, accepted(), process.Started{PID: 7})
			p.lose(process.Exit{Cause: process.CauseShimLost})
			if err := p.resume(r.ctx()); err != nil {
				t.Error(err)
			}
			if rec := r.whole(p.id); len(rec.events) != 4 || describe(rec.end()) != "shim_lost" {
				t.Errorf("%d events, %s", len(rec.events), describe(rec.end()))
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
			r, p := leftBehind(t, true, wire.Process{First: 104, Last: 104}, recorded...)
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
			if err := p.publish(r.ctx()); err != nil {
				t.Fatal(err)
			}
			if rec := r.whole(p.id); len(rec.events) != want || describe(rec.end()) != "exited 0" {
				t.Errorf("%d events, want %d: %s", len(rec.events), want, describe(rec.end()))
			}
		})
	}
}

// An exit that a previous run had in flight may be stored while this run ends the record: the
// observed exit stands.
func TestExitThatIsStoredLateStands(t *testing.T) {
	code := int32(3)
	r, p := leftBehind(t, true, wire.Process{}, accepted(), process.Started{PID: 7})
	if err := p.entry.read(r.ctx()); err != nil {
		t.Fatal(err)
	}
	before := r.log.Writer(p.ref, 1)
	for _, w := range []*events.Writer{p.w, before} {
		if _, err := w.Recover(r.ctx()); err != nil {
			t.Fatal(err)
		}
	}
	late := process.Event{Seq: 3, Time: time.Now(), Body: process.Exited{Exit: process.Exit{Code: &code, Cause: process.CauseExited}}}
	if err := before.Append(r.ctx(), []process.Event{late}); err != nil {
		t.Fatal(err)
	}
	if err := p.end(r.ctx(), process.Exit{Cause: process.CauseShimLost}); err != nil {
		t.Fatal(err)
	}
	if rec := r.whole(p.id); len(rec.events) != 4 || describe(rec.end()) != "exited 3" {
		t.Errorf("%s: %s", describe(rec.end()), rec.types())
	}
	if sum := r.summary(p.id); describe(sum.Exit) != "exited 3" {
		t.Errorf("catalogue: %s", describe(sum.Exit))
	}
}

// A shim may invent any number of processes; none of them is remembered.
func TestInventedProcessIsNotRemembered(t *testing.T) {
	r, p := leftBehind(t, false, wire.Process{First: 2, Last: 2})
	if err := p.resume(r.ctx()); err != nil {
		t.Error(err)
	}
	if len(p.sb.session.procs) != 0 || len(p.sb.session.forgotten) != 0 {
		t.Errorf("%d processes and %d forgotten ones are remembered", len(p.sb.session.procs), len(p.sb.session.forgotten))
	}
}
