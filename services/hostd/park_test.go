package hostd

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/millrace/millrace/events/command"
	"github.com/millrace/millrace/events/eventstest"
	"github.com/millrace/millrace/events/process"
	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/services/hostd/internal/driver"
	"github.com/millrace/millrace/services/hostd/internal/driver/direct"
)

// oneSlow is a driver whose Attach to one sandbox waits until it is released.
type oneSlow struct {
	driver.Driver
	slow     sandbox.ID
	released chan struct{}
}

func (d oneSlow) Attach(ctx context.Context, s driver.Spec) (driver.Instance, error) {
	if s.ID == d.slow {
		select {
		case <-d.released:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	return d.Driver.Attach(ctx, s)
}

// An adopted sandbox runs commands while the host still attaches to another one, whose commands
// wait and then run in their order.
func TestAdoptedSandboxesRunCommandsBeforeTheOthersAreAdopted(t *testing.T) {
	r := newRigOn(t, "direct")
	r.begin()
	r.awaitLease(0)
	slow, quick := r.sandbox(), r.sandbox()
	r.kill()
	d := oneSlow{Driver: direct.New(direct.Config{}), slow: slow, released: make(chan struct{})}
	r.cfg.drivers = []driver.Driver{d}
	r.begin()
	waits := r.start(slow, process.Spec{Cmd: "cat", Stdin: true})
	var want strings.Builder
	for i := range 20 {
		line := fmt.Sprintf("%d\n", i)
		want.WriteString(line)
		r.send(waits, command.Stdin{Data: []byte(line), EOF: i == 19})
	}
	if got := describe(r.whole(r.start(quick, sh("exit 3"))).end()); got != "exited 3" {
		t.Errorf("command in the adopted sandbox: %s, want exited 3", got)
	}
	close(d.released)
	rec := r.whole(waits)
	if got := string(rec.out[process.Stdout]); got != want.String() || describe(rec.end()) != "exited 0" {
		t.Errorf("got %q, %s; want %q, exited 0", got, describe(rec.end()), want.String())
	}
}

// A restart reads the records of ended processes in batches: the first command does not wait for
// thousands of requests to the store.
func TestRestartReadsFinishedProcessesInBatches(t *testing.T) {
	const finished = 120
	r := newRigOn(t, "direct")
	r.begin()
	epoch := r.awaitLease(0)
	sbx := r.sandbox()
	var ids []process.ID
	for range finished {
		ids = append(ids, r.start(sbx, sh("exit 0")))
	}
	for _, id := range ids {
		r.whole(id)
	}
	r.kill()
	requests := eventstest.Requests(t, r.srv)
	r.begin()
	r.awaitLease(epoch)
	if got := describe(r.whole(r.start(sbx, sh("exit 3"))).end()); got != "exited 3" {
		t.Errorf("first command: %s, want exited 3", got)
	}
	r.kill()
	if n := requests(); n > finished/2 {
		t.Errorf("%d requests for messages with %d finished processes, want few", n, finished)
	}
}
