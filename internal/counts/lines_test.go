package counts

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/internal/cli/client"
)

const (
	printers = 100
	rounds   = 20 // lines of each printer
)

// printer is a process that prints each line that it is sent, and a client that reads its record.
type printer struct {
	in  *os.File
	out *client.Lines
}

// Each printer prints a line, a client reads it, and then the next line follows: so the lines of
// one process are never stored together, and those of several may be.
func TestLines(t *testing.T) {
	r := start(t)
	ps := make([]*printer, printers)
	for i := range ps {
		ps[i] = r.printer(t, i)
	}
	round(t, ps, "first\n") // what is allocated once is not counted
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	stored, delivered := r.server.sent.count("out"), r.server.received.count("out")
	for n := range rounds {
		round(t, ps, fmt.Sprintf("line %d\n", n))
	}
	runtime.ReadMemStats(&after)
	lines := float64(printers * rounds)
	for _, c := range []struct {
		what       string
		got, limit float64
	}{
		{"messages stored per 1,000 lines", 1000 * float64(r.server.sent.count("out")-stored) / lines, 1010},
		{"messages delivered per 1,000 lines", 1000 * float64(r.server.received.count("out")-delivered) / lines, 1010},
		{"allocations per line", float64(after.Mallocs-before.Mallocs) / lines, 100},
		{"bytes allocated per line", float64(after.TotalAlloc-before.TotalAlloc) / lines, 12_000},
	} {
		t.Logf("%s: %.4g", c.what, c.got)
		if c.got > c.limit {
			t.Errorf("%s: %.4g, limit %.4g", c.what, c.got, c.limit)
		}
	}
}

// round lets each printer print a line and waits for all of them.
func round(t *testing.T, ps []*printer, line string) {
	t.Helper()
	for _, p := range ps {
		if _, err := p.in.WriteString(line); err != nil {
			t.Fatal(err)
		}
	}
	for _, p := range ps {
		p.await(t, line)
	}
}

// printer starts a printer and its client.
func (r *rig) printer(t *testing.T, n int) *printer {
	t.Helper()
	fifo := filepath.Join(t.TempDir(), fmt.Sprint(n))
	if err := unix.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	in, err := os.OpenFile(fifo, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { in.Close() })
	id, err := r.client.Start(r.context(t), r.sandbox, &client.Command{Cmd: "cat", Args: []string{fifo}, User: fifoOwner()})
	if err != nil {
		t.Fatal(err)
	}
	out, err := r.client.Events(r.context(t), id, 0, true)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(out.Close)
	return &printer{in: in, out: out}
}

// fifoOwner returns the user that may read the test's files; empty: the default.
func fifoOwner() string {
	if os.Geteuid() == 0 {
		return "root"
	}
	return ""
}

// await reads until a line has arrived.
func (p *printer) await(t *testing.T, line string) {
	t.Helper()
	want := []byte(line[:len(line)-1])
	for {
		got, err := p.out.Raw()
		if err != nil {
			t.Fatal(err)
		}
		if bytes.Contains(got, want) {
			return
		}
	}
}
