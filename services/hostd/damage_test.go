package hostd

import (
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/millrace/millrace/events/command"
	"github.com/millrace/millrace/events/eventstest"
	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/process"
	"github.com/millrace/millrace/events/record"
)

// damaged describes a record on a damaged disk: its seqs are dense, except for gap events.
type damaged struct {
	gone process.Seq // events before this one are lost, as the reader's error reports
	last process.Seq
	gaps int
	end  *process.Exit
}

// readDamaged reads a record to its end.
func (r *rig) readDamaged(id process.ID) (d damaged) {
	r.t.Helper()
	ref := record.Ref{Host: r.cfg.Name, ID: id}
	reader := r.log.Read(ref, 0)
	defer func() { reader.Close() }()
	for {
		batch, err := reader.Next(r.ctx(), 0)
		if first, ok := record.FirstSeq(err); ok && kind.Is(err, kind.Gone) && d.last == 0 && d.gone == 0 {
			reader.Close()
			d.gone, d.last = first, first-1
			reader = r.log.Read(ref, d.last)
			continue
		}
		if errors.Is(err, io.EOF) {
			return d
		}
		if err != nil {
			r.t.Fatalf("after %d: %v", d.last, err)
		}
		for _, e := range batch {
			from := e.Seq
			if g, ok := e.Body.(process.Gap); ok {
				d.gaps++
				from = g.From
			}
			if from != d.last+1 {
				r.t.Fatalf("event %d (%s) begins at %d, after %d", e.Seq, e.Type(), from, d.last)
			}
			if f, ok := e.Body.(process.Finished); ok {
				d.end = &f.Exit
			}
			d.last = e.Seq
		}
	}
}

// Whatever a disk does to the output, a record that was read completely before has a gap where
// events are missing, and its end.
func TestDamagedOutput(t *testing.T) {
	const noise = "head -c 1000000 /dev/urandom; "
	for _, d := range eventstest.Damages() {
		t.Run("ended/"+d.Name, func(t *testing.T) {
			r := newRunningRig(t)
			id := r.start(r.sandbox(), sh(noise+"exit 6"))
			whole := process.Seq(len(r.whole(id).events))
			r.damage(d)
			got := r.readDamaged(id)
			// The tail may be the end alone, which the catalog has.
			if describe(got.end) != "exited 6" || got.last != whole || got.gaps == 0 && got.gone == 0 && d.Name != eventstest.Tail {
				t.Errorf("%s at %d of %d, %d gaps, gone up to %d", describe(got.end), got.last, whole, got.gaps, got.gone)
			}
			if sum, _, err := r.log.Summary(r.ctx(), record.Ref{Host: hostName, ID: id}); err != nil || describe(sum.Exit) != "exited 6" {
				t.Errorf("the catalog has %s, %v", describe(sum.Exit), err)
			}
		})
		t.Run("running/"+d.Name, func(t *testing.T) {
			r := newRunningRig(t)
			id := r.start(r.sandbox(), process.Spec{Cmd: "sh", Args: []string{"-c", noise + "echo ready; read x; echo more; exit 6"}, Stdin: true})
			before := process.Seq(len(r.awaitOutput(id, "ready").events))
			r.damage(d)
			r.send(id, command.Stdin{Data: []byte("\n")})
			got := r.readDamaged(id)
			// stdin_ack, stdout, exited and end follow. A host whose last append was not acknowledged
			// stores it again, so that damage at the tail may leave no gap.
			missing := got.gaps > 0 || got.gone > 0 || strings.Contains(d.Name, "tail")
			if describe(got.end) != "exited 6" || got.last != before+4 || !missing {
				t.Errorf("%s at %d, want %d; %d gaps, gone up to %d", describe(got.end), got.last, before+4, got.gaps, got.gone)
			}
		})
	}
}

// damage damages the output between two runs of the host and of the server.
func (r *rig) damage(d eventstest.Damage) {
	r.t.Helper()
	epoch := r.awaitLease(0)
	r.kill()
	r.srv.Damage("OUT_00", d)
	r.srv.Resume()
	r.begin()
	r.awaitLease(epoch)
}
