package e2e_test

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/millrace/millrace/e2e/rig"
)

// codexDeaths is a topology with two gateways, whose processes the tests kill.
type codexDeaths struct {
	t   *testing.T
	s   *rig.Split
	box rig.Sandbox
}

// client returns a client of both gateways, which is connected to the one with that index.
func (d *codexDeaths) client(first int, query string) *codexClient {
	d.t.Helper()
	c := newCodexClient(d.t, "/codex/"+d.box.ID+query, d.s.APIs...)
	c.turn = first
	must(d.t, c.connect(never))
	return c
}

// Processes are killed with -9 while a session has running processes: nothing is lost, repeated
// or made up. A soak has three NATS servers, too.
func TestCodexDeaths(t *testing.T) {
	t.Parallel()
	topologies := []int{1}
	if os.Getenv(EnvSoak) != "" {
		topologies = append(topologies, 3)
	}
	for _, servers := range topologies {
		t.Run(fmt.Sprintf("%d NATS", servers), func(t *testing.T) {
			s := newTopology(t, rig.Topology{NATS: servers, Gateways: 2})
			d := &codexDeaths{t: t, s: s, box: s.APIs[0].Create(t)}
			d.resumedAtOnce()
			d.writtenOnce()
			d.killed()
			d.backlog()
			d.endsWithoutItsGateway()
		})
	}
}

// resumedAtOnce resumes a session at both gateways at once: one wins.
func (d *codexDeaths) resumedAtOnce() {
	c := d.client(0, "")
	p := c.start("p", "read l; echo $l; exit 5", "pipeStdin", true)
	for round := range 8 {
		c.drop()
		var clients [2]*codexClient
		var errs [2]error
		for {
			var wg sync.WaitGroup
			for i := range clients {
				wg.Go(func() { clients[i], errs[i] = d.try(c, i) })
			}
			wg.Wait()
			if errs[0] == nil && errs[1] == nil {
				d.t.Fatalf("round %d: both gateways have the client", round)
			}
			if errs[0] == nil || errs[1] == nil {
				break
			}
			drop(clients, errs)
			<-time.After(codexPause) // the gateway has not noticed yet that its client left
		}
		for i, err := range errs {
			var refused *codexError
			switch {
			case err == nil:
				c = clients[i]
			case !errors.As(err, &refused) || refused.Code != -32010:
				d.t.Errorf("round %d: refused with %v", round, err)
			}
		}
		drop(clients, errs)
	}
	must(d.t, c.call("process/write", codexArgs{"processId": "p", "chunk": base64Of("hi\n"), "writeId": "1"}, nil))
	c.untilClosed(never)
	if string(p.out["stdout"]) != "hi\n" || p.exits != 1 || p.code != 5 {
		d.t.Errorf("%q, %d exits, code %d", p.out, p.exits, p.code)
	}
	c.drop()
}

// drop ends the connections of clients that were refused.
func drop(clients [2]*codexClient, errs [2]error) {
	for i, c := range clients {
		if errs[i] != nil && c != nil {
			c.drop()
		}
	}
}

// try resumes the session of a client at one gateway, once.
func (d *codexDeaths) try(of *codexClient, i int) (*codexClient, error) {
	a := d.s.APIs[i]
	ws, _, err := tryCodex(d.t.Context(), a, of.path, "Authorization", "Bearer "+a.Key)
	if err != nil {
		return nil, err
	}
	c := newCodexClient(d.t, of.path, d.s.APIs...)
	c.session, c.procs, c.ws, c.answers = of.session, of.procs, ws, map[string]codexMessage{}
	return c, c.begin()
}

// writtenOnce repeats a write with its id after its gateway has died before the answer.
func (d *codexDeaths) writtenOnce() {
	for round := range 2 {
		c := d.client(0, "")
		p := c.start("p", "cat; exit 5", "pipeStdin", true)
		write := codexArgs{"processId": "p", "chunk": base64Of("once\n"), "writeId": "w"}
		if _, err := c.request("process/write", write); err != nil {
			d.t.Fatal(err)
		}
		if round == 1 {
			must(d.t, c.receiveUntil(func() bool { return len(p.out["stdout"]) > 0 }))
		}
		d.s.Program("gateway-1").Kill9()
		must(d.t, c.connect(never))
		must(d.t, d.s.RestartProgram("gateway-1"))
		must(d.t, c.call("process/write", write, nil))
		must(d.t, c.call("process/write", codexArgs{"processId": "p", "chunk": base64Of("twice\n"), "writeId": "x"}, nil))
		must(d.t, c.receiveUntil(func() bool { return strings.Contains(string(p.out["stdout"]), "twice") }))
		must(d.t, c.call("process/terminate", codexArgs{"processId": "p"}, nil))
		c.untilClosed(never)
		if got := string(p.out["stdout"]); got != "once\ntwice\n" || p.exits != 1 || p.code == 0 {
			d.t.Errorf("%q, %d exits, code %d", got, p.exits, p.code)
		}
		c.drop()
	}
}

// killed kills each service in turn under processes that print.
func (d *codexDeaths) killed() {
	c := d.client(0, "")
	stop := "/tmp/codex-killed-" + d.box.ID
	pipe := c.start("pipe", numbered(stop))
	tty := c.start("tty", numbered(stop), "tty", true)
	for _, name := range []string{"gateway-1", "host-1", "nats-1", "gateway-2", "reaper-1", "scheduler-1"} {
		d.progress(c, pipe, tty)
		d.s.Program(name).Kill9()
		must(d.t, d.s.RestartProgram(name))
	}
	d.progress(c, pipe, tty)
	must(d.t, d.s.Program("gateway-1").Term()) // a client there moves to the other one
	d.progress(c, pipe, tty)
	must(d.t, d.s.RestartProgram("gateway-1"))
	ans, err := rig.Try(d.s.APIs, codexTimeout, http.MethodPost, "/filesystem.Filesystem/MakeDir", map[string]any{"path": stop}, "E2b-Sandbox-Id", d.box.ID)
	if err != nil || ans.Status != http.StatusOK {
		d.t.Fatal(ans, err)
	}
	c.untilClosed(never)
	n := checkNumbered(d.t, "pipe", pipe, pipe.out["stdout"])
	checkNumbered(d.t, "tty", tty, tty.out["pty"])
	d.t.Logf("%d lines", n)
	c.drop()
}

// backlog kills the gateway of a session whose process then writes: another one has all of it.
func (d *codexDeaths) backlog() {
	b := codexBacklog{2 << 20, 1, "0"}
	if os.Getenv(EnvSoak) != "" {
		b.size = 100 << 20
	}
	c := d.client(0, "")
	p := b.start(c, d.box.ID)
	d.s.Program("gateway-1").Kill9()
	c.drop()
	b.begin(d.t, d.s.APIs[1], d.box.ID)
	b.ended(d.t, d.s.APIs[1], d.box.ID)
	c.untilClosed(never) // at gateway-2
	must(d.t, d.s.RestartProgram("gateway-1"))
	b.check(d.t, p)
	c.drop()
}

// progress waits until processes have printed more.
func (d *codexDeaths) progress(c *codexClient, procs ...*codexProcess) {
	d.t.Helper()
	size := func(p *codexProcess) int { return len(p.out["stdout"]) + len(p.out["pty"]) }
	for _, p := range procs {
		for want := size(p) + 1; size(p) < want; {
			if c.receive() == nil {
				continue
			}
			if err := c.connect(never); err != nil {
				d.t.Fatal(err)
			}
		}
	}
}

// endsWithoutItsGateway kills the gateway of a session, whose time ends while it is dead: another
// one ends it, with its processes.
func (d *codexDeaths) endsWithoutItsGateway() {
	c := d.client(0, "?detach_timeout=1")
	c.start("p", "echo here; sleep 4712")
	d.s.Program("gateway-1").Kill9()
	c.drop()
	alive := func() bool {
		ans := d.s.APIs[1].Do(d.t, http.MethodGet, "/v1/processes?sandbox="+d.box.ID+"&state=running", nil)
		return strings.Contains(string(ans.Body), "4712")
	}
	began := time.Now()
	if !alive() {
		d.t.Error("the process ended with its gateway")
	}
	if !rig.Poll(codexTimeout, func() bool { return !alive() }) {
		d.t.Error("the process outlives its session")
	}
	d.t.Logf("ended %v after its gateway", time.Since(began))
	must(d.t, d.s.RestartProgram("gateway-1"))
	for i := range d.s.APIs {
		_, err := d.try(c, i)
		var refused *codexError
		if !errors.As(err, &refused) || refused.Code != -32600 {
			d.t.Errorf("gateway %d: the session was resumed after its end: %v", i+1, err)
		}
	}
}
