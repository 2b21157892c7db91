package processes_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/events/eventstest"
	"github.com/millrace/millrace/events/process"
	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/services/gateway/internal/core"
	"github.com/millrace/millrace/services/gateway/internal/core/coretest"
	"github.com/millrace/millrace/services/gateway/internal/operations"
	"github.com/millrace/millrace/services/gateway/internal/processes"
	"github.com/millrace/millrace/services/gateway/internal/procs"
	"github.com/millrace/millrace/services/gateway/internal/record"
	"github.com/millrace/millrace/services/gateway/internal/record/recordtest"
	"github.com/millrace/millrace/services/gateway/internal/stream"
)

// fixture is a log with a host and any number of gateways.
type fixture struct {
	t   *testing.T
	srv *eventstest.Server
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	h := &fixture{t: t, srv: eventstest.Start(t)}
	log := eventstest.Open(t, h.srv)
	coretest.Run(t, log, eventstest.View(t, log))
	return h
}

// gateway returns a gateway with its own connection, and its URL.
func (h *fixture) gateway() (*operations.Operations, string) {
	h.t.Helper()
	log := eventstest.Open(h.t, h.srv)
	c := operations.New(core.Config{Log: log, View: eventstest.View(h.t, log), Secret: []byte("secret"), Sealer: eventstest.Ring(h.t, log)})
	streams := stream.New(stream.Config{})
	return c, recordtest.Serve(h.t, streams, processes.New(record.NewGateway(c), streams).Register)
}

func principal() core.Principal { return core.Principal{Tenant: recordtest.Tenant} }

func (h *fixture) start(c *operations.Operations, cmd string, args ...string) process.ID {
	h.t.Helper()
	ctx, cancel := context.WithTimeout(h.t.Context(), time.Minute)
	defer cancel()
	sbx, err := c.Provisioner.CreateSandbox(ctx, principal(), sandbox.Requested{Schedule: sandbox.Schedule{Lifetime: time.Hour}})
	if err != nil {
		h.t.Fatal(err)
	}
	a, err := c.Procs.Start(ctx, principal(), sbx.ID, process.Spec{Cmd: cmd, Args: args}, procs.StartOptions{})
	if err != nil {
		h.t.Fatal(err)
	}
	defer a.Reader.Close()
	for {
		batch, err := a.Reader.Next(ctx, 0)
		if err != nil {
			h.t.Fatal(err)
		}
		if _, ok := batch[len(batch)-1].Body.(process.Finished); ok {
			return a.ID
		}
	}
}

// A client that disconnects after every event and reconnects to the other gateway receives
// each event once, in order, also while the log restarts.
func TestReconnectToAnotherGateway(t *testing.T) {
	h := newFixture(t)
	c, one := h.gateway()
	_, two := h.gateway()
	args := make([]string, 500)
	for i := range args {
		args[i] = fmt.Sprint("line ", i)
	}
	id := h.start(c, "echo", args...)
	urls := [2]string{one, two}
	var types, output strings.Builder
	last := uint64(0)
	for n := 0; ; n++ {
		if n == len(args)/2 {
			h.srv.Restart()
		}
		resp, body := recordtest.Do(t, urls[n%2], recordtest.Request{Method: "GET", Path: fmt.Sprintf("/v1/processes/%s/events?limit=1&after=%d", id, last)})
		if resp.StatusCode != 200 {
			t.Fatalf("after %d: %d %s", last, resp.StatusCode, body)
		}
		if body == "" {
			break
		}
		var e struct {
			Seq        uint64
			Type, Data string
		}
		if err := json.Unmarshal([]byte(body), &e); err != nil || e.Seq != last+1 {
			t.Fatalf("after %d: %s, %v", last, body, err)
		}
		last = e.Seq
		output.WriteString(e.Data)
		if e.Type != "stdout" {
			types.WriteString(e.Type + " ")
		}
	}
	if want := strings.Join(args, "\n") + "\n"; output.String() != want {
		t.Errorf("got %d bytes, want %d", output.Len(), len(want))
	}
	if got, want := types.String(), "accepted start exited end "; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestPositionsOnARealRecord(t *testing.T) {
	h := newFixture(t)
	c, url := h.gateway()
	id := h.start(c, "echo", "hi") // accepted, start, stdout, exited, end
	for query, want := range map[string]int{
		"after=5": 200, "after=now": 200, "after=6": 400, "after=9223372036854775808": 400, "follow=0&after=2": 200,
	} {
		resp, body := recordtest.Do(t, url, recordtest.Request{Method: "GET", Path: "/v1/processes/" + string(id) + "/events?" + query})
		if resp.StatusCode != want || want == 400 && !strings.Contains(body, `"error_code":"out_of_range","last":5}`) {
			t.Errorf("%s: %d %s", query, resp.StatusCode, body)
		}
	}
	unknown := process.NewID(id.Sandbox())
	for _, id := range []process.ID{unknown, process.NewID("i9")} {
		if resp, body := recordtest.Do(t, url, recordtest.Request{Method: "GET", Path: "/v1/processes/" + string(id) + "/events"}); resp.StatusCode != 404 {
			t.Errorf("%s: %d %s", id, resp.StatusCode, body)
		}
	}
}
