package e2e_test

import (
	"encoding/hex"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	otlp "go.opentelemetry.io/proto/otlp/common/v1"
	trace "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"github.com/millrace/millrace/e2e/rig"
)

const (
	traceID     = "0af7651916cd43dd8448eb211c80319c"
	parentSpan  = "b7ad6b7169203331"
	traceParent = "00-" + traceID + "-" + parentSpan + "-01"
)

// processInfo is a process as GET /v1/processes/{id} shows it.
type processInfo struct {
	State    string `json:"state"`
	TraceID  string `json:"trace_id"`
	ExitCode *int   `json:"exit_code"`
}

// printTrace prints the context of the trace that a process has.
const printTrace = `echo "$TRACEPARENT $TRACESTATE"`

// A start's traceparent is in the record and in the environment, without any setting; one that is not
// valid is ignored.
func TestTraceContextIsPassedOn(t *testing.T) {
	a := api(t)
	box := a.Create(t)
	tests := []struct {
		name, parent, state string
		env                 map[string]string
		want, id            string
	}{
		{"none", "", "a=b", nil, " \n", ""},
		{"valid", traceParent, "", nil, traceParent + " \n", traceID},
		{"with a state", traceParent, "rojo=1,congo=2", nil, traceParent + " rojo=1,congo=2\n", traceID},
		{"not valid", strings.ToUpper(traceParent), "a=b", nil, " \n", ""},
		{"the start's own", traceParent, "a=b", map[string]string{"TRACEPARENT": "x"}, "x \n", traceID},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var headers []string
			for name, value := range map[string]string{"traceparent": tt.parent, "tracestate": tt.state} {
				if value != "" {
					headers = append(headers, name, value)
				}
			}
			start := map[string]any{"process": map[string]any{"cmd": "/bin/sh", "args": []string{"-c", printTrace}, "envs": tt.env}, "stdin": false}
			run := a.StartSpec(t, box.ID, start, headers...).All(t)
			if run.Stdout() != tt.want {
				t.Errorf("Start: the process has %q, want %q", run.Stdout(), tt.want)
			}
			if got := infoOf(t, a, run.Process); got.TraceID != tt.id || got.State != "ended" {
				t.Errorf("Start: the process is shown as %+v, want the trace %q", got, tt.id)
			}
			body := map[string]any{"cmd": "/bin/sh", "args": []string{"-c", printTrace}, "env": tt.env}
			out := a.Want(t, http.StatusOK, http.MethodPost, "/commands?sandbox="+box.ID, body, headers...)
			if want := strings.TrimSuffix(tt.want, "\n"); !strings.Contains(string(out.Body), `"data":"`+want) {
				t.Errorf("POST /commands: %s, want %q", out.Body, want)
			}
		})
	}
}

// The other families pass the context on, too: codex has it for a connection, and chooses the environment
// of its processes itself.
func TestTraceContextOfOtherFamilies(t *testing.T) {
	a := api(t)
	v := newVM(t, a)
	var out executed
	v.do(t, http.MethodPost, "/exec", map[string]string{"command": printTrace}, "traceparent", traceParent).Decode(t, &out)
	if strings.TrimSpace(out.Output) != traceParent {
		t.Errorf("e2a: the process has %q, want %q", out.Output, traceParent)
	}
	box := a.Create(t)
	c := dialCodex(t, a, "/codex/"+box.ID, "traceparent", traceParent)
	c.begin("")
	c.start("p", `echo "[$TRACEPARENT]"`)
	c.prints("p", "stdout", "[]\n")
	if ans := a.Want(t, http.StatusOK, http.MethodGet, "/v1/processes?sandbox="+box.ID, nil); !strings.Contains(string(ans.Body), `"trace_id":"`+traceID+`"`) {
		t.Errorf("codex: no process has the trace: %s", ans.Body)
	}
}

func infoOf(t testing.TB, a *rig.API, id string) (p processInfo) {
	t.Helper()
	a.Want(t, http.StatusOK, http.MethodGet, "/v1/processes/"+id, nil).Decode(t, &p)
	return p
}

// spanCollector is an OpenTelemetry collector that receives spans over HTTP.
type spanCollector struct {
	*httptest.Server
	t  testing.TB
	up atomic.Bool // otherwise it responds 503

	mu      sync.Mutex
	spans   []*trace.Span
	refused int
}

func newSpanCollector(t testing.TB) *spanCollector {
	t.Helper()
	c := &spanCollector{t: t}
	c.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		raw, err := io.ReadAll(r.Body)
		if err != nil {
			return // it was killed
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		if !c.up.Load() {
			c.refused++
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		var data trace.TracesData
		if err := proto.Unmarshal(raw, &data); err != nil || r.URL.Path != "/v1/traces" || r.Header.Get("Authorization") != "Bearer secret" {
			t.Errorf("%s with %v: %v", r.URL.Path, r.Header, err)
		}
		for _, of := range data.ResourceSpans {
			for _, in := range of.ScopeSpans {
				c.spans = append(c.spans, in.Spans...)
			}
		}
	}))
	t.Cleanup(c.Close)
	return c
}

func (c *spanCollector) env() []string {
	return []string{"OTEL_EXPORTER_OTLP_ENDPOINT=" + c.URL, "OTEL_EXPORTER_OTLP_HEADERS=Authorization=Bearer%20secret"}
}

// of returns the spans of a process.
func (c *spanCollector) of(id string) (spans []*trace.Span) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range c.spans {
		if slices.ContainsFunc(s.Attributes, func(a *otlp.KeyValue) bool {
			return a.Key == "millrace.process.id" && a.Value.GetStringValue() == id
		}) {
			spans = append(spans, s)
		}
	}
	return spans
}

// wait waits for the span of a process.
func (c *spanCollector) wait(id string) *trace.Span {
	c.t.Helper()
	if !rig.Poll(time.Minute, func() bool { return len(c.of(id)) > 0 }) {
		c.t.Fatalf("no span of %s", id)
	}
	return c.of(id)[0]
}

func (c *spanCollector) requestsRefused() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.refused
}

// attribute returns an attribute of a span as text, or an empty one.
func attribute(s *trace.Span, name string) string {
	for _, a := range s.Attributes {
		if a.Key == name {
			if text := a.Value.GetStringValue(); text != "" {
				return text
			}
			return strconv.FormatInt(a.Value.GetIntValue(), 10)
		}
	}
	return ""
}

// The gateway that starts a process, and the reaper, are killed while the collector is down: the span of
// the process arrives once, in the trace of the request. A process that is lost with its host has one, too.
func TestSpansSurviveKills(t *testing.T) {
	t.Parallel()
	c := newSpanCollector(t)
	s := newTopology(t, rig.Topology{NATS: 1, Gateways: 2, Reapers: 1, Env: c.env()})
	box := s.APIs[0].Create(t)
	start := spec("/bin/sh", []string{"-c", printTrace + "; read x; exit 3"}, "stdin", true)
	r := s.APIs[0].StartSpec(t, box.ID, start, "traceparent", traceParent, "tracestate", "a=b")
	m := r.Started(t)
	id := processOf(t, m)
	s.Program("gateway-1").Kill9()
	r.Close()
	s.APIs[1].RPC(t, box.ID, "/process.Process/CloseStdin", byPID(m.Event.Start.PID))
	if !rig.Poll(time.Minute, func() bool { return c.requestsRefused() > 1 }) {
		t.Fatal("no span is sent")
	}
	_, err := s.Crash("reaper-1")
	must(t, err)
	next := s.APIs[1].StartStream(t, box.ID, "exit 0").All(t).Process
	lost, _ := launch(t, s.APIs[1], box.ID, spec("/bin/sleep", []string{"600"}))
	s.Program("host-1").Kill9()
	c.up.Store(true)

	got := c.wait(id)
	if hex.EncodeToString(got.TraceId) != traceID || hex.EncodeToString(got.ParentSpanId) != parentSpan || got.TraceState != "a=b" ||
		attribute(got, "process.exit.code") != "3" || got.Status.GetCode() != trace.Status_STATUS_CODE_ERROR || got.Name != "execute_tool sh" {
		t.Errorf("span %v, want one of %s", got, traceParent)
	}
	ok := c.wait(next)
	if len(ok.ParentSpanId) != 0 || ok.Status.GetCode() != trace.Status_STATUS_CODE_UNSET || attribute(ok, "process.exit.code") != "0" {
		t.Errorf("span %v, want a root without an error", ok)
	}
	gone := c.wait(lost)
	if gone.Status.GetCode() != trace.Status_STATUS_CODE_ERROR || attribute(gone, "millrace.cause") != "host_lost" || attribute(gone, "process.exit.code") != "" {
		t.Errorf("span %v, want the error host_lost", gone)
	}
	for _, one := range []string{id, next, lost} {
		if n := len(c.of(one)); n != 1 {
			t.Errorf("%d spans of %s, want 1", n, one)
		}
	}
	must(t, s.RestartProgram("host-1")) // which ends what is left of the lost sandbox
	must(t, s.Settled(1))
	// What the process traces belongs to its span.
	run := s.APIs[1].Events(t, id, "").All(t)
	if want := "00-" + traceID + "-" + hex.EncodeToString(got.SpanId) + "-01 a=b"; !strings.Contains(raws(run), want) {
		t.Errorf("the process has another TRACEPARENT than %s: %s", want, raws(run))
	}
}
