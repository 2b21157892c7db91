package hostd

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/millrace/millrace/events/command"
	"github.com/millrace/millrace/events/eventstest"
	"github.com/millrace/millrace/events/process"
	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/internal/waiting"
	"github.com/millrace/millrace/services/hostd/internal/journal"
)

// If a process ran before its host and its shim were killed, but nothing was stored after its
// claim, its start is lost and not refused: the next retry with its key must not run it again.
func TestStartThatMayHaveRunIsNotRefused(t *testing.T) {
	r := newRigOn(t, "direct")
	r.begin()
	r.awaitLease(0)
	sbx := r.sandbox()
	r.kill()
	ran := filepath.Join(t.TempDir(), "ran")
	r.cfg.Fault = func(at string) error {
		if at != "spawned" {
			return nil
		}
		for waiting.Sleep(r.ctx(), 10*time.Millisecond) {
			if _, err := os.Stat(ran); err == nil {
				return errInterrupted
			}
		}
		return errors.New("it does not run")
	}
	cut := r.begin()
	c := newCommand(process.NewID(sbx), command.Start{Spec: sh("echo > " + ran)})
	c.Deadline = time.Now().Add(5 * time.Second)
	if err := r.log.Send(r.ctx(), hostName, c); err != nil {
		t.Fatal(err)
	}
	if r.awaitEnd(cut); !errors.Is(cut.err, errInterrupted) {
		t.Fatalf("the host ended with %v", cut.err)
	}
	r.killShim(sbx)
	late, cancel := context.WithDeadline(r.ctx(), c.Deadline)
	defer cancel()
	<-late.Done()
	r.cfg.Fault = nil
	r.begin()
	if rec := r.whole(c.Process); describe(rec.end()) != "shim_lost" {
		t.Errorf("%s: %s, want shim_lost", describe(rec.end()), rec.types())
	}
}

// A host that lost its journal reads its commands again. A process whose record is gone is not
// started a second time.
func TestHostWithoutItsJournalStartsNothingTwice(t *testing.T) {
	r := newRigOn(t, "direct")
	r.begin()
	epoch := r.awaitLease(0)
	sbx := r.sandbox()
	runs := filepath.Join(t.TempDir(), "runs")
	r.whole(r.start(sbx, sh("echo x >> "+runs)))
	r.kill()
	eventstest.Forget(t, r.srv, "OUT_")
	if err := os.Remove(filepath.Join(r.cfg.DataDir, journal.File)); err != nil {
		t.Fatal(err)
	}
	r.begin()
	r.awaitLease(epoch)
	r.whole(r.start(sbx, sh("exit 0"))) // a host's commands are read in order
	r.stopSandbox(sbx)
	r.awaitPhase(sbx, sandbox.PhaseDestroyed) // every process has ended
	if got, err := os.ReadFile(runs); err != nil || string(got) != "x\n" {
		t.Errorf("%q, %v; want one run", got, err)
	}
}
