package e2e_test

import (
	"fmt"
	"net/http"
	"os"
	"sort"
	"strconv"
	"testing"
	"time"

	"github.com/millrace/millrace/e2e/rig"
)

const foldedMetric = "millrace_screen_folded_bytes_total"

// printed starts a terminal that prints about so many MiB and ends.
func printed(t testing.TB, a *rig.API, sandbox string, mib int) (id string) {
	t.Helper()
	line := "\\033[3%dmline\\033[0m %d of a build log that is eighty columns wide or so, more or less\\n"
	program := fmt.Sprintf(`BEGIN { for (i = 0; n < %d; i++) n += 72 + length(i); for (j = 0; j < i; j++) printf "%s", j %% 8, j }`, mib<<20, line)
	s := a.Commands(t, sandbox, "awk", "args", []string{program}, "pty", map[string]int{"cols": 80, "rows": 24}, "timeout_ms", 0)
	first, err := s.Next()
	if err != nil {
		t.Fatal(err)
	}
	s.Close()
	if !rig.Poll(10*time.Minute, func() bool {
		sum := a.Want(t, http.StatusOK, http.MethodGet, "/v1/processes/"+first.Process, nil)
		var p struct {
			Ended *time.Time `json:"ended_at"`
		}
		sum.Decode(t, &p)
		return p.Ended != nil
	}) {
		t.Fatal("the terminal does not end")
	}
	return first.Process
}

// A gateway that has never seen a terminal shows its screens after it has read a few MiB, because
// another one, which was killed, has stored key frames.
func TestKeyFramesOutliveTheirGateway(t *testing.T) {
	t.Parallel()
	s := newTopology(t, rig.Topology{Gateways: 2})
	box := s.APIs[0].Create(t)
	id := printed(t, s.APIs[0], box.ID, 24)
	end := screenAt(t, s.APIs[0], id, "")
	late := fmt.Sprintf("?seq=%d", end.Last*7/8)
	want := screenAt(t, s.APIs[0], id, late)
	whole := s.APIs[0].Metrics(t)[foldedMetric]
	if whole < 24<<20 {
		t.Fatalf("the first gateway folded %.0f bytes", whole)
	}
	s.Program("gateway-1").Kill9()
	b := s.APIs[1]
	before := b.Metrics(t)[foldedMetric]
	if got := screenAt(t, b, id, ""); got.text() != end.text() {
		t.Errorf("another last screen:\n%s\nwant\n%s", got.text(), end.text())
	}
	last := b.Metrics(t)[foldedMetric]
	if got := screenAt(t, b, id, late); got.text() != want.text() {
		t.Errorf("another screen at %s:\n%s\nwant\n%s", late, got.text(), want.text())
	}
	seek := b.Metrics(t)[foldedMetric]
	if last-before > 2<<20 || seek-last > 5<<20 {
		t.Errorf("folded %.0f bytes for the last screen and %.0f for another one", last-before, seek-last)
	}
	t.Logf("first gateway: %.0f bytes; second one: %.0f for the last screen, %.0f for a late one", whole, last-before, seek-last)
}

// BenchmarkTerminal opens a terminal of KEYFRAME_MIB (default 256) MiB on fresh gateways, and shows
// random events of it.
func BenchmarkTerminal(b *testing.B) {
	mib := 256
	if n, err := strconv.Atoi(os.Getenv("KEYFRAME_MIB")); err == nil {
		mib = n
	}
	s := rig.NewSplit(b, rig.Topology{Gateways: 2})
	a := s.APIs[0]
	box := a.Create(b)
	began := time.Now()
	id := printed(b, a, box.ID, mib)
	b.Logf("printed in %v", time.Since(began))
	began = time.Now()
	for {
		r := a.Do(b, http.MethodGet, "/v1/processes/"+id+"/screen", nil)
		if r.Status == http.StatusOK {
			break
		}
	}
	b.Logf("folded first in %v, %.0f bytes", time.Since(began), a.Metrics(b)[foldedMetric])
	var open, seeks []time.Duration
	for b.Loop() {
		if _, err := s.Crash("gateway-2"); err != nil { // and starts it again
			b.Fatal(err)
		}
		g := s.APIs[1]
		get := func(query string) (time.Duration, uint64) {
			began := time.Now()
			r := g.Want(b, http.StatusOK, http.MethodGet, "/v1/processes/"+id+"/screen"+query, nil)
			took := time.Since(began)
			var sc screenOf
			r.Decode(b, &sc)
			return took, sc.Last
		}
		g.Want(b, http.StatusOK, http.MethodGet, "/v1/processes/"+id, nil) // connects
		took, last := get("")
		open = append(open, took)
		for i := range 100 {
			took, _ := get(fmt.Sprintf("?seq=%d", 1+(uint64(i)*7919*31)%last))
			seeks = append(seeks, took)
		}
	}
	sort.Slice(open, func(i, j int) bool { return open[i] < open[j] })
	sort.Slice(seeks, func(i, j int) bool { return seeks[i] < seeks[j] })
	b.ReportMetric(float64(open[len(open)/2])/1e6, "first-ms")
	b.ReportMetric(float64(seeks[len(seeks)/2])/1e6, "seek-p50-ms")
	b.ReportMetric(float64(seeks[len(seeks)*99/100])/1e6, "seek-p99-ms")
}
