package bench

import (
	"io"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/cli/client"
	"github.com/millrace/millrace/internal/cli/clitest"
	"github.com/millrace/millrace/internal/cli/command"
)

// rounds returns rounds of 1 to 2 ms per command, multiplied by times. On average one
// command in 90 takes a hundred times as long.
func rounds(seed uint64, times float64) (out [][]time.Duration) {
	r := rand.New(rand.NewPCG(seed, 0))
	for range 10 {
		var round []time.Duration
		for range 300 {
			took := times * (1 + r.Float64())
			if r.IntN(90) == 0 {
				took *= 100
			}
			round = append(round, time.Duration(took*float64(time.Millisecond)))
		}
		out = append(out, round)
	}
	return out
}

func TestAgainst(t *testing.T) {
	for _, tt := range []struct {
		name        string
		noisy       float64
		q           float64
		least, most float64 // bounds of the ratio
		narrow, one bool    // the interval is narrow, and contains 1
	}{
		{"the median of equal sides", 1, 0.50, 0.95, 1.05, true, true},
		{"the median of a slower side", 1.5, 0.50, 1.42, 1.58, true, false},
		{"the 99th percentile of equal sides is random", 1, 0.99, 0.01, 100, false, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			turns := turns{silent: side{rounds: rounds(1, 1)}, noisy: side{rounds: rounds(2, tt.noisy)}}
			r := turns.against(tt.q)
			if r.found < tt.least || r.found > tt.most || r.least > r.found || r.most < r.found {
				t.Errorf("ratio %.3f in [%.3f, %.3f], want %.2f to %.2f", r.found, r.least, r.most, tt.least, tt.most)
			}
			if narrow := r.most < 1.1*r.least; narrow != tt.narrow {
				t.Errorf("[%.3f, %.3f]: narrow %v, want %v", r.least, r.most, narrow, tt.narrow)
			}
			if has := r.least <= 1 && r.most >= 1; has != tt.one {
				t.Errorf("[%.3f, %.3f] contains 1: %v, want %v", r.least, r.most, has, tt.one)
			}
		})
	}
}

func TestNoneReportsCountedRoundsWithoutCommands(t *testing.T) {
	for _, tt := range []struct {
		name string
		s    side
		want bool
	}{
		{"no round counted", side{discarded: 3}, false},
		{"no command ended", side{rounds: [][]time.Duration{nil, nil}}, true},
		{"one command ended", side{rounds: [][]time.Duration{nil, {time.Millisecond}}}, false},
	} {
		if got := tt.s.none(); got != tt.want {
			t.Errorf("%s: none = %v, want %v", tt.name, got, tt.want)
		}
	}
}

func TestQuantile(t *testing.T) {
	var all []time.Duration
	for i := 1; i <= 100; i++ {
		all = append(all, time.Duration(i))
	}
	if quantile(all, 0.5) != 50 || quantile(all, 0.99) != 99 || quantile(all[:1], 0.99) != 1 {
		t.Errorf("p50 %d, p99 %d", quantile(all, 0.5), quantile(all, 0.99))
	}
}

// The timeout of a noisy sandbox is reduced to the gateway's maximum, and its end removes it.
func TestNoisySandboxReducesTimeoutsToTheMaximum(t *testing.T) {
	g := clitest.NewGateway(t)
	g.Most = 1200
	c, err := client.New(g.Server.URL, "e2b_00")
	if err != nil {
		t.Fatal(err)
	}
	b := &bench{Env: &command.Env{Config: command.Config{Err: io.Discard}}, c: c}
	n, err := b.noisySandbox(t.Context(), &noise{})
	if err != nil {
		t.Fatal(err)
	}
	if err := n.resume(t.Context()); err != nil {
		t.Error(err)
	}
	n.end(t.Context())
	if want := []int64{1800, 1200, 1200}; !slices.Equal(g.Timeouts, want) || len(g.Removed) != 1 {
		t.Errorf("timeouts %v, want %v; removed %d sandboxes, want 1", g.Timeouts, want, len(g.Removed))
	}
}

// Both sides are compared by their medians; what only one measures is left out.
func TestCompare(t *testing.T) {
	values := func(name string, all ...float64) (out []metric) {
		for _, v := range all {
			out = append(out, metric{Scenario: "start", Name: name, Value: v, Unit: "ms"})
		}
		return out
	}
	got := compare(append(values("end", 3, 1, 2), values("new", 1)...), append(values("end", 4, 9, 5), values("old", 1)...))
	want := []pair{{Scenario: "start", Name: "end", This: 2, Against: 5, Unit: "ms"}}
	if !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// --codex runs the scenarios of codex and those that they are compared with; --only wins.
func TestChosenScenarios(t *testing.T) {
	for _, tt := range []struct {
		name string
		f    benchFlags
		want []string
	}{
		{"codex", benchFlags{codex: true}, []string{"codex-idle", "start", "codex-start", "codex-stdio", "bulk", "codex-bulk", "codex-backlog", "echo", "codex-echo", "codex-outage"}},
		{"named", benchFlags{codex: true, only: []string{"list"}}, []string{"list"}},
	} {
		var got []string
		for _, s := range scenarios() {
			if tt.f.chosen(&s) {
				got = append(got, s.name)
			}
		}
		if !slices.Equal(got, tt.want) {
			t.Errorf("%s: %v, want %v", tt.name, got, tt.want)
		}
	}
	for _, s := range scenarios() {
		if s.by == byCodex && (&benchFlags{}).chosen(&s) {
			t.Errorf("%s runs without --codex", s.name)
		}
	}
}
