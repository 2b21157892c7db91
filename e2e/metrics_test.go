package e2e_test

import (
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"

	"github.com/millrace/millrace/e2e/rig"
)

const (
	metricsToken = "a-token-for-the-scrapes-of-a-test"
	metricsWait  = time.Minute
)

var metricsAddress = regexp.MustCompile(`msg="metrics served" (?:role=\S+ )?address=(\S+)`)

// ops is the address for metrics and probes of one program.
type ops struct {
	role, url string
}

// opsOf returns the addresses of all programs of a split topology.
func opsOf(t *testing.T, s *rig.Split) []ops {
	t.Helper()
	var all []ops
	for program, role := range map[string]string{"nats-1": "nats", "gateway-1": "gateway", "scheduler-1": "scheduler", "reaper-1": "reaper", "host-1": "hostd"} {
		m := metricsAddress.FindStringSubmatch(s.Program(program).Log())
		if m == nil {
			t.Fatalf("%s serves no metrics:\n%s", program, s.Program(program).Log())
		}
		all = append(all, ops{role, "http://" + m[1]})
	}
	return all
}

func (o ops) get(t testing.TB, path, token string) (status int, body string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, o.url+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(b)
}

// fetch returns the text of a scrape.
func (o ops) fetch(t testing.TB) string {
	t.Helper()
	status, body := o.get(t, "/metrics", metricsToken)
	if status != http.StatusOK {
		t.Fatalf("%s: %d %s", o.role, status, body)
	}
	return body
}

// scrape returns the samples by name and labels. The format must pass promtool's linter.
func (o ops) scrape(t *testing.T) map[string]float64 {
	t.Helper()
	body := o.fetch(t)
	problems, err := promlint.New(strings.NewReader(body)).Lint()
	if err != nil || len(problems) > 0 {
		t.Errorf("%s: %v, %v", o.role, problems, err)
	}
	samples, err := rig.ParseMetrics([]byte(body))
	if err != nil {
		t.Fatal(err)
	}
	return samples
}

// metricsOf are series that a role has after its start, in addition to those of every role.
var metricsOf = map[string][]string{
	"nats":      {"millrace_nats_connections", "millrace_nats_store_limit_bytes", "millrace_nats_problems"},
	"scheduler": {},
	"reaper":    {},
	"hostd":     {`millrace_host_memory_bytes{state="available"}`, `millrace_host_disk_bytes{state="all"}`, `millrace_host_cpu_seconds_total{state="busy"}`, "millrace_host_warm_instances", "millrace_sandboxes_evicted_total", "millrace_host_fenced_total"},
	"gateway": {
		"millrace_process_start_seconds_count", "millrace_process_first_byte_seconds_count", "millrace_sandbox_create_seconds_count", "millrace_sandbox_resume_seconds_count",
		`millrace_stream_bytes{stream="OUT_00"}`, `millrace_stream_limit_bytes{stream="OUT_00"}`, `millrace_stream_led{stream="SBX"}`, `millrace_stream_writable{stream="SBX"}`,
		`millrace_stream_replica_lag{stream="SBX"}`, `millrace_hosts{state="alive"}`, `millrace_http_requests_total{class="5xx"}`,
	},
}

// Each role serves its metrics and probes on an address of its own, and only with the token. What
// does not happen on a healthy day is counted from zero, and counted once when it happens.
func TestEachRoleServesMetrics(t *testing.T) {
	t.Parallel()
	s := rig.NewSplit(t, rig.Topology{AllEnv: []string{"MILLRACE_METRICS_LISTEN=127.0.0.1:0", "MILLRACE_METRICS_TOKEN=" + metricsToken}})
	api, all := s.APIs[0], opsOf(t, s)
	sandbox := api.Create(t)
	if out := rig.Output(api.Commands(t, sandbox.ID, "echo hello").All(t), "stdout"); out != "hello\n" {
		t.Fatalf("the output is %q", out)
	}
	long := api.Commands(t, sandbox.ID, "echo begun; sleep 600")
	defer long.Close()
	long.Until(t, func(l *rig.Line) bool { return l.Type == "stdout" })
	if got := api.Do(t, http.MethodGet, "/no-such-path/"+sandbox.ID, nil); got.Status != http.StatusNotFound {
		t.Errorf("an unknown path: %s", got)
	}
	byRole := make(map[string]ops)
	for _, o := range all {
		byRole[o.role] = o
		o.check(t)
	}
	gateway := byRole["gateway"].scrape(t)
	for _, series := range []string{
		`millrace_http_route_requests_total{class="2xx",method="POST",route="/commands"}`,
		`millrace_http_route_requests_total{class="4xx",method="other",route="other"}`,
		`millrace_tenant_requests_total{class="2xx",tenant="default"}`,
		"millrace_process_start_seconds_count", "millrace_sandbox_create_seconds_count",
	} {
		if gateway[series] < 1 {
			t.Errorf("%s is %v", series, gateway[series])
		}
	}
	for series := range gateway {
		if strings.Contains(series, sandbox.ID) {
			t.Errorf("a label has an id: %s", series)
		}
	}
	if n := byRole["hostd"].scrape(t)["millrace_log_append_seconds_count"]; n < 1 {
		t.Errorf("the host counts %v appends", n)
	}

	// An object store is created when it is first used.
	if out := rig.Output(api.Commands(t, sandbox.ID, "head -c 1000000 /dev/urandom >~/file").All(t), "stdout"); out != "" {
		t.Fatalf("the output is %q", out)
	}
	snapshotOf(t, api, sandbox.ID)
	const size, limit = `millrace_stream_bytes{stream="OBJ_templates"}`, `millrace_stream_limit_bytes{stream="OBJ_templates"}`
	if !rig.Poll(metricsWait, func() bool {
		gateway = byRole["gateway"].scrape(t)
		return gateway[size] > 1e6 && gateway[limit] > gateway[size]
	}) {
		t.Errorf("the stored snapshot has %v bytes of %v", gateway[size], gateway[limit])
	}

	s.Program("host-1").Kill9()
	lost := rig.Poll(metricsWait, func() bool { return byRole["reaper"].scrape(t)["millrace_processes_lost_total"] == 1 })
	if !lost {
		t.Error("the reaper does not count the lost process")
	}
	if err := s.Program("host-1").Restart(); err != nil { // it removes what its previous run left
		t.Fatal(err)
	}
	if !rig.Poll(metricsWait, func() bool { return api.AliveHosts() == 1 }) {
		t.Error("the host does not start again")
	}
}

// check checks what is the same for all roles.
func (o ops) check(t *testing.T) {
	t.Helper()
	if !rig.Poll(metricsWait, func() bool { status, _ := o.get(t, "/readyz", ""); return status == http.StatusOK }) {
		_, body := o.get(t, "/readyz", "")
		t.Errorf("%s is not ready: %s", o.role, body)
	}
	if status, body := o.get(t, "/livez", ""); status != http.StatusOK {
		t.Errorf("%s: /livez: %d %s", o.role, status, body)
	}
	if status, body := o.get(t, "/metrics", ""); status != http.StatusUnauthorized {
		t.Errorf("%s: metrics without a token: %d %s", o.role, status, body)
	}
	samples := o.scrape(t)
	for _, zero := range []string{"millrace_processes_lost_total", "millrace_record_gaps_total", "millrace_appends_fenced_total"} {
		if n, ok := samples[zero]; !ok || n != 0 {
			t.Errorf("%s: %s is %v, %v", o.role, zero, n, ok)
		}
	}
	for _, series := range append([]string{"go_goroutines", "process_resident_memory_bytes", "millrace_log_append_seconds_count", "millrace_log_replay_seconds_count"}, metricsOf[o.role]...) {
		if _, ok := samples[series]; !ok {
			t.Errorf("%s: %s is missing", o.role, series)
		}
	}
	var builds int
	for series := range samples {
		if strings.HasPrefix(series, "millrace_build_info{") && strings.Contains(series, fmt.Sprintf("role=%q", o.role)) {
			builds++
		}
	}
	if builds != 1 {
		t.Errorf("%s: %d series of build info", o.role, builds)
	}
}
