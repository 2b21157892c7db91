package bench

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"time"

	"github.com/millrace/millrace/internal/cli/client"
	"github.com/millrace/millrace/internal/cli/command"
	"github.com/millrace/millrace/internal/waiting"
)

// contender is one of two binaries that are compared, with a server of its own.
type contender struct {
	name string // of its column
	dir  string // of its server's data
	cmd  *exec.Cmd
	b    bench
}

// pair is the medians of one metric.
type pair struct {
	Scenario string  `json:"scenario"`
	Name     string  `json:"name"`
	This     float64 `json:"this"`
	Against  float64 `json:"against"`
	Unit     string  `json:"unit"`
}

// readyTimeout limits how long a server may take to start.
const readyTimeout = 2 * time.Minute

// runAgainst measures the scenarios on servers of two binaries in turn: whatever slows the
// machine down for a while slows both.
func runAgainst(ctx context.Context, b *bench, asJSON bool) error {
	this, err := os.Executable()
	if err != nil {
		return err
	}
	var both [2]*contender
	for i, binary := range []string{this, b.f.against} {
		c, err := contend(ctx, b, binary)
		if err != nil {
			return fmt.Errorf("%s: %w", binary, err)
		}
		defer c.stop()
		both[i] = c
	}
	for _, s := range scenarios() {
		if !b.f.chosen(&s) {
			continue
		}
		b.Notef("%s: %s", s.name, s.about)
		for n := range 2 * b.f.rounds {
			c := both[(n+n/2)%2] // which is first alternates, too
			if err := c.b.measure(ctx, s.name, s.run); err != nil {
				return fmt.Errorf("%s: %w", c.name, err)
			}
		}
	}
	pairs := compare(both[0].b.out, both[1].b.out)
	if asJSON {
		return b.WriteJSON(pairs)
	}
	rows := make([][]string, len(pairs))
	for i, p := range pairs {
		rows[i] = []string{p.Scenario, p.Name, format(p.This), format(p.Against), p.Unit, strconv.FormatFloat(p.This/p.Against, 'f', 2, 64)}
	}
	return b.Table([]string{"SCENARIO", "WHAT", "THIS", "AGAINST", "UNIT", "RATIO"}, rows)
}

// compare returns the medians of the metrics that both sides have.
func compare(this, against []metric) []pair {
	var out []pair
	for _, m := range this {
		known := slices.ContainsFunc(out, func(p pair) bool { return p.Scenario == m.Scenario && p.Name == m.Name })
		theirs := valuesOf(against, m)
		if known || len(theirs) == 0 {
			continue
		}
		out = append(out, pair{Scenario: m.Scenario, Name: m.Name, This: median(valuesOf(this, m)), Against: median(theirs), Unit: m.Unit})
	}
	return out
}

// valuesOf returns all values of a metric.
func valuesOf(all []metric, m metric) (values []float64) {
	for _, o := range all {
		if o.Scenario == m.Scenario && o.Name == m.Name {
			values = append(values, o.Value)
		}
	}
	return values
}

func median(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	return sorted[len(sorted)/2]
}

// contend starts a binary's server with an empty data directory and creates a sandbox.
func contend(ctx context.Context, b *bench, binary string) (_ *contender, err error) {
	c := &contender{name: binary, b: *b}
	c.b.binary = binary
	if c.dir, err = os.MkdirTemp("", "millrace-bench-"); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			c.stop()
		}
	}()
	c.cmd = exec.Command(binary, "up", "--driver", b.f.driver, "--listen", "127.0.0.1:0", "--data", c.dir) //nolint:noctx // stop ends it in order
	if err := c.cmd.Start(); err != nil {
		return nil, err
	}
	c.b.server = process(c.cmd.Process.Pid)
	if c.b.c, err = c.client(ctx); err != nil {
		return nil, err
	}
	created, err := c.b.c.CreateSandbox(ctx, client.SandboxSpec{TemplateID: "base", Timeout: int64(benchLifetime / time.Second)})
	c.b.sbx = created.ID
	return c, err
}

// client waits until the server is ready.
func (c *contender) client(ctx context.Context) (*client.Client, error) {
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	const pause = 100 * time.Millisecond
	for {
		url, noURL := command.ReadTrimmed(filepath.Join(c.dir, command.AddressFile))
		key, noKey := command.ReadTrimmed(filepath.Join(c.dir, command.KeyFile))
		err := cmp.Or(noURL, noKey)
		if err == nil {
			cl, err := client.New(url, key)
			if err != nil {
				return nil, err
			}
			if _, err = cl.Call(ctx, &client.Request{Method: http.MethodGet, Path: "/readyz"}, nil); err == nil {
				return cl, nil
			}
		}
		if !waiting.Sleep(ctx, pause) {
			return nil, fmt.Errorf("its server is not ready after %v: %w", readyTimeout, cmp.Or(err, ctx.Err()))
		}
	}
}

// stop ends the server and removes its data.
func (c *contender) stop() {
	if c.cmd != nil && c.cmd.Process != nil {
		_ = c.cmd.Process.Signal(syscall.SIGINT) // it may have ended
		_ = c.cmd.Wait()                         // interrupted
	}
	_ = os.RemoveAll(c.dir) // a temporary directory
}
