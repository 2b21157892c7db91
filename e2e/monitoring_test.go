package e2e_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"text/template"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/promql/parser"
	"sigs.k8s.io/yaml"

	"github.com/millrace/millrace/e2e/rig"
)

// alertRules is the form of a file of rules.
type alertRules struct {
	Groups []struct {
		Name  string `json:"name"`
		Rules []struct {
			Alert       string            `json:"alert"`
			Expr        string            `json:"expr"`
			For         string            `json:"for"`
			Labels      map[string]string `json:"labels"`
			Annotations map[string]string `json:"annotations"`
		} `json:"rules"`
	} `json:"groups"`
}

// alertFuncs are the functions of Prometheus's templates that the rules use.
func alertFuncs() template.FuncMap {
	same := func(v any) any { return v }
	return template.FuncMap{"humanize": same, "humanizePercentage": same, "humanizeDuration": same}
}

// selected returns the names of the metrics that an expression selects.
func selected(t *testing.T, expr string) []string {
	t.Helper()
	tree, err := parser.ParseExpr(strings.ReplaceAll(expr, "$__rate_interval", "1m"))
	if err != nil {
		t.Errorf("%s: %v", expr, err)
		return nil
	}
	var all []string
	parser.Inspect(tree, func(n parser.Node, _ []parser.Node) error {
		if v, ok := n.(*parser.VectorSelector); ok {
			all = append(all, v.Name)
		}
		return nil
	})
	return all
}

// Prometheus accepts the alert rules and the queries of the dashboard, and a running program has
// every metric in them.
func TestAlertRulesAndDashboardMatchTheMetrics(t *testing.T) {
	t.Parallel()
	addr, err := rig.FreeAddr()
	if err != nil {
		t.Fatal(err)
	}
	u := rig.NewUp(t, rig.Options{Args: []string{"--metrics-listen", addr}})
	sandbox := u.Create(t)
	u.Commands(t, sandbox.ID, "true").All(t)
	up := ops{"up", "http://" + addr}
	if !rig.Poll(metricsWait, func() bool { return len(streamsOf(up.scrape(t))) > 0 }) {
		t.Fatal("no stream was checked")
	}
	have := make(map[string]bool)
	for series := range up.scrape(t) {
		name, _, _ := strings.Cut(series, "{")
		have[name] = true
	}
	check := func(where, expr string) {
		t.Helper()
		names := selected(t, expr)
		if len(names) == 0 {
			t.Errorf("%s: %q selects nothing", where, expr)
		}
		for _, name := range names {
			if !have[name] {
				t.Errorf("%s: the metric %s does not exist", where, name)
			}
		}
	}
	for _, r := range readAlertRules(t) {
		check(r.name, r.expr)
	}
	for title, exprs := range readDashboard(t) {
		for _, expr := range exprs {
			check(title, expr)
		}
	}
}

// streamsOf returns the series that have the sizes of streams.
func streamsOf(samples map[string]float64) (all []string) {
	for series := range samples {
		if strings.HasPrefix(series, "millrace_stream_bytes{") {
			all = append(all, series)
		}
	}
	return all
}

type alertRule struct{ name, expr string }

// readAlertRules returns the alert rules, and fails if one is not valid or not in the docs.
func readAlertRules(t *testing.T) (all []alertRule) {
	t.Helper()
	var rules alertRules
	if err := yaml.UnmarshalStrict(readMonitoring(t, "deploy/monitoring/rules.yml"), &rules); err != nil {
		t.Fatal(err)
	}
	docs := string(readMonitoring(t, "docs/monitoring.md"))
	for _, g := range rules.Groups {
		for _, r := range g.Rules {
			all = append(all, alertRule{r.Alert, r.Expr})
			if _, err := model.ParseDuration(r.For); r.For != "" && err != nil {
				t.Errorf("%s: %v", r.Alert, err)
			}
			if s := r.Labels["severity"]; s != "critical" && s != "warning" || r.Annotations["summary"] == "" {
				t.Errorf("%s: severity %q, annotations %v", r.Alert, s, r.Annotations)
			}
			for _, text := range r.Annotations {
				if _, err := template.New("").Funcs(alertFuncs()).Parse("{{$labels := .}}{{$value := .}}" + text); err != nil {
					t.Errorf("%s: %v", r.Alert, err)
				}
			}
			if !strings.Contains(docs, "`"+r.Alert+"`") {
				t.Errorf("docs/monitoring.md does not say what to do at %s", r.Alert)
			}
		}
	}
	if len(all) == 0 {
		t.Error("there are no alert rules")
	}
	return all
}

// readDashboard returns the queries of the dashboard by the titles of its panels.
func readDashboard(t *testing.T) map[string][]string {
	t.Helper()
	var board struct {
		Panels []struct {
			Title, Type string
			Targets     []struct{ Expr string }
		}
	}
	if err := json.Unmarshal(readMonitoring(t, "deploy/monitoring/dashboard.json"), &board); err != nil {
		t.Fatal(err)
	}
	all := make(map[string][]string)
	for _, p := range board.Panels {
		if p.Type != "row" && len(p.Targets) == 0 {
			t.Errorf("the panel %s has no query", p.Title)
		}
		for _, q := range p.Targets {
			all[p.Title] = append(all[p.Title], q.Expr)
		}
	}
	if len(all) == 0 {
		t.Error("the dashboard is empty")
	}
	return all
}

func readMonitoring(t *testing.T, path string) []byte {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(rig.Root(), path))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// A scrape takes 5 ms or less with 10,000 processes in the log.
func BenchmarkScrape(b *testing.B) {
	addr, err := rig.FreeAddr()
	if err != nil {
		b.Fatal(err)
	}
	u := rig.NewUp(b, rig.Options{Args: []string{"--metrics-listen", addr}})
	sandbox := u.Create(b)
	const processes, batch = 10_000, 100
	for range processes / batch {
		done := make(chan struct{}, batch)
		for range batch {
			go func() {
				defer func() { done <- struct{}{} }()
				u.Commands(b, sandbox.ID, "true").All(b)
			}()
		}
		for range batch {
			<-done
		}
	}
	up := ops{"up", "http://" + addr}
	b.ResetTimer()
	var worst time.Duration
	for b.Loop() {
		begin := time.Now()
		up.fetch(b)
		worst = max(worst, time.Since(begin))
	}
	b.ReportMetric(float64(worst.Microseconds())/1000, "ms/worst")
}
