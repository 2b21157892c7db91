package e2e_test

import (
	"context"
	"encoding/base64"
	"fmt"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/millrace/millrace/e2e/rig"
)

// surfaces lists the surfaces that a crowd reads.
var surfaces = []string{"events", "sse", "commands", "connect", "durable", "bytes"}

// newReader returns a client of a surface.
func newReader(surface, sandbox, id string) reader {
	switch surface {
	case "events":
		return &eventsReader{id: id}
	case "sse":
		return &eventsReader{id: id, sse: true}
	case "commands":
		return &commandsReader{id: id}
	case "connect":
		return &connectReader{sandbox: sandbox, id: id}
	case "durable":
		return &durableReader{id: id, events: eventsReader{id: id}}
	case "bytes":
		return &durableReader{id: id, bytes: true}
	}
	panic("no surface " + surface)
}

// crowd is a group of clients, each of which reads a counter to its end.
type crowd struct {
	ledgers []*ledger
	wg      sync.WaitGroup
	ctx     context.Context // context of the readers
}

// crowdTimeout bounds the total duration of a reader.
const crowdTimeout = 8 * time.Minute

func newCrowd(t *testing.T) *crowd {
	t.Helper()
	return newCrowdFor(t, crowdTimeout)
}

func newCrowdFor(t *testing.T, within time.Duration) *crowd {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), within)
	c := &crowd{ctx: ctx}
	t.Cleanup(func() {
		cancel()
		c.wg.Wait()
	})
	return c
}

// add starts a reader, first on the gateway with the given index.
func (c *crowd) add(name, id string, r reader, apis []*rig.API, first int) *ledger {
	l := newLedger(name, id)
	c.ledgers = append(c.ledgers, l)
	c.wg.Go(func() { follow(c.ctx, l, r, apis, first) })
	return l
}

// watch adds one reader per surface.
func (c *crowd) watch(apis []*rig.API, sandbox, id string, first int, by ...string) {
	for _, s := range by {
		c.add(s, id, newReader(s, sandbox, id), apis, first)
	}
}

const (
	progressTimeout = 2 * time.Minute
	finishTimeout   = 4 * time.Minute
)

// progress waits until every reader has received the given number of further lines.
func (c *crowd) progress(t *testing.T, more uint64) {
	t.Helper()
	to := make([]uint64, len(c.ledgers))
	for i, l := range c.ledgers {
		to[i] = l.lines.Load() + more
	}
	for i, l := range c.ledgers {
		to := to[i]
		ok := rig.Poll(progressTimeout, func() bool {
			select {
			case <-l.settled:
				return true
			default:
				return l.lines.Load() >= to
			}
		})
		if l.lines.Load() < to {
			select {
			case <-l.settled:
				t.Fatalf("ended early: %v", l.check(-1000))
			default:
			}
			t.Fatalf("%s: line %d after %v, want %d (ok %v)", l.name, l.lines.Load(), progressTimeout, to, ok)
		}
	}
}

// finish waits for the end of every reader and checks the exit code.
func (c *crowd) finish(t *testing.T, code int) {
	t.Helper()
	late := time.NewTimer(finishTimeout)
	defer late.Stop()
	for _, l := range c.ledgers {
		select {
		case <-l.settled:
		case <-late.C:
			t.Fatalf("%s: no end %v after it was due; at line %d", l.name, finishTimeout, l.lines.Load())
		}
		if err := l.check(code); err != nil {
			t.Error(err)
		}
	}
	lines := map[string]uint64{}
	for _, l := range c.ledgers {
		if n, ok := lines[l.process]; ok && n != l.lines.Load() {
			t.Errorf("%s has %d lines, others %d", l.name, l.lines.Load(), n)
		}
		lines[l.process] = l.lines.Load()
	}
}

// stalled returns the longest silence of any reader since the last call.
func (c *crowd) stalled() time.Duration {
	var d time.Duration
	for _, l := range c.ledgers {
		d = max(d, l.stalled())
	}
	return d
}

// paused returns the longest pause of any process itself.
func (c *crowd) paused() time.Duration {
	var d time.Duration
	for _, l := range c.ledgers {
		d = max(d, l.pause())
	}
	return d
}

// newTopology starts a topology and waits until its hosts accept sandboxes.
func newTopology(t *testing.T, top rig.Topology) *rig.Split {
	t.Helper()
	s := rig.NewSplit(t, top)
	must(t, s.Settled(max(top.Hosts, 1)))
	return s
}

// launch sends a StartRequest, closes the stream, and returns the process's id and pid.
func launch(t *testing.T, a *rig.API, sandbox string, spec map[string]any) (id string, pid uint32) {
	t.Helper()
	r := a.StartSpec(t, sandbox, spec)
	defer r.Close()
	m := r.Started(t)
	return processOf(t, m), m.Event.Start.PID
}

// stopCounter sends a counter the input that makes it end.
func stopCounter(t *testing.T, apis []*rig.API, sandbox string, pid uint32, stream string) {
	t.Helper()
	in := map[string]any{stream: base64.StdEncoding.EncodeToString([]byte("q\n"))}
	ans, err := rig.Try(apis, progressTimeout, http.MethodPost, "/process.Process/SendInput", byPID(pid, "input", in), "E2b-Sandbox-Id", sandbox)
	if err != nil || ans.Status != http.StatusOK && ans.Status != http.StatusNotFound {
		t.Fatalf("SendInput: %v %v", ans, err)
	}
}

// percentiles formats percentiles of durations.
func percentiles(all []time.Duration) string {
	if len(all) == 0 {
		return "none"
	}
	var sum, most time.Duration
	for _, d := range all {
		sum, most = sum+d, max(most, d)
	}
	return fmt.Sprintf("mean %v, max %v of %d", (sum / time.Duration(len(all))).Round(time.Millisecond), most.Round(time.Millisecond), len(all))
}

// must fails the test on an error.
func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
