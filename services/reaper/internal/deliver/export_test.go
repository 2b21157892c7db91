package deliver

import (
	"compress/gzip"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	common "go.opentelemetry.io/proto/otlp/common/v1"
	trace "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/millrace/millrace/events/catalog"
	"github.com/millrace/millrace/events/eventstest"
	"github.com/millrace/millrace/events/process"
	"github.com/millrace/millrace/events/tracing"
	"github.com/millrace/millrace/events/webhook"
)

// collector is a receiver of spans.
type collector struct {
	t *testing.T
	*httptest.Server
	answer func(n int, w http.ResponseWriter, spans []*trace.Span) bool // false: they were not accepted

	mu       sync.Mutex
	requests int
	resource map[string]string
	taken    []*trace.Span
	more     chan struct{} // capacity 1
}

func newCollector(t *testing.T, answer func(n int, w http.ResponseWriter, spans []*trace.Span) bool) *collector {
	t.Helper()
	c := &collector{t: t, answer: answer, more: make(chan struct{}, 1), resource: map[string]string{}}
	c.Server = httptest.NewServer(c)
	t.Cleanup(c.Close)
	return c
}

func (c *collector) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body := r.Body
	if r.Header.Get("Content-Encoding") == "gzip" {
		z, err := gzip.NewReader(body)
		if err != nil {
			c.t.Error(err)
			return
		}
		body = z
	}
	raw, err := io.ReadAll(body)
	if err != nil {
		return // the deliverer was interrupted
	}
	var data trace.TracesData
	if err := proto.Unmarshal(raw, &data); err != nil || r.URL.Path != "/v1/traces" || r.Header.Get("Content-Type") != "application/x-protobuf" || r.Header.Get("X-Key") != "k" {
		c.t.Errorf("%s with %v: %v", r.URL.Path, r.Header, err)
	}
	spans := data.ResourceSpans[0].ScopeSpans[0].Spans
	c.mu.Lock()
	c.requests++
	n := c.requests
	for _, a := range data.ResourceSpans[0].Resource.Attributes {
		c.resource[a.Key] = a.Value.GetStringValue()
	}
	c.mu.Unlock()
	if c.answer != nil && !c.answer(n, w, spans) {
		return
	}
	c.mu.Lock()
	c.taken = append(c.taken, spans...)
	c.mu.Unlock()
	select {
	case c.more <- struct{}{}:
	default:
	}
}

// wait waits for n spans and returns the names of all, in order.
func (c *collector) wait(ctx context.Context, n int) (names []string) {
	c.t.Helper()
	for {
		c.mu.Lock()
		got := slices.Clone(c.taken)
		c.mu.Unlock()
		if len(got) >= n {
			for _, s := range got {
				names = append(names, s.Name)
			}
			return names
		}
		select {
		case <-c.more:
		case <-ctx.Done():
			c.t.Fatalf("%d spans came, want %d", len(got), n)
		}
	}
}

// exporting returns a configuration that exports spans.
func (w *world) exporting(c *collector) Config {
	cfg := w.config()
	cfg.Traces = &tracing.Settings{
		URL: c.URL + "/v1/traces", Headers: map[string]string{"X-Key": "k"}, Timeout: 5 * time.Second,
		Resource: map[string]string{"service.name": "s", "a": "b"},
	}
	var err error
	cfg.Traces.Sampler, err = tracing.ParseSampler("", "")
	w.ok(err)
	return cfg
}

// exportFromNow runs a deliverer that exports spans, and returns when it has begun.
func (w *world) exportFromNow(cfg Config) (stop func()) {
	w.t.Helper()
	stop = w.deliver(cfg)
	w.until("the export has begun", func() bool { return w.view.SpansCursor().Rev > 0 })
	return stop
}

// until waits until a view has what ok looks for.
func (w *world) until(what string, ok func() bool) {
	w.t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-tick.C:
		case <-w.ctx.Done():
			w.t.Fatalf("never: %s", what)
		}
	}
}

// ended writes the entries of a process that ran and ended.
func (w *world) ended(cmd string, helper bool, t *process.Trace) process.ID {
	w.t.Helper()
	s := process.Summary{
		ID: process.NewID("i1"), Tenant: "a", Host: "h", Spec: process.Spec{Cmd: cmd, Helper: helper, Trace: t}, PID: 7, Started: time.Unix(100, 0),
	}
	rev, err := w.log.PutSummary(w.ctx, &s, 0)
	w.ok(err)
	s.Ended, s.Exit, s.Last = time.Unix(101, 0), &process.Exit{Code: new(int32), Cause: process.CauseExited}, 9
	_, err = w.log.PutSummary(w.ctx, &s, rev)
	w.ok(err)
	return s.ID
}

func execute(commands ...string) (names []string) {
	for _, c := range commands {
		names = append(names, "execute_tool "+c)
	}
	return names
}

// Every command has a span, in the order of their ends; others have none, nor those that ended before the
// first export.
func TestExportsEachCommandOnce(t *testing.T) {
	w := newWorld(t, eventstest.Open(t, eventstest.Start(t)))
	w.ended("early", false, nil)
	w.ok(w.view.Sync(w.ctx))
	c := newCollector(t, nil)
	cfg := w.exporting(c)
	cfg.Traces.Gzip = true
	w.exportFromNow(cfg)
	sampled := &process.Trace{ID: process.TraceID{1}, Parent: process.SpanID{2}, Flags: 1}
	unsampled := &process.Trace{ID: process.TraceID{1}, Parent: process.SpanID{2}}
	w.ended("a", false, nil)
	w.ended("helper", true, nil)
	w.ended("b", true, sampled)
	w.ended("c", false, unsampled)
	w.ended("d", false, sampled)
	if got, want := c.wait(w.ctx, 3), execute("a", "b", "d"); !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if c.resource["service.name"] != "s" || c.resource["a"] != "b" {
		t.Errorf("resource %v", c.resource)
	}
	w.until("the cursor is after all", func() bool {
		cur := w.view.SpansCursor()
		return cur.Holder == "" && cur.Done == 3 && cur.Processes.Rev() == w.view.ProcessesRev()
	})
}

// A receiver that is down gets everything later, also if the deliverer restarts meanwhile.
func TestExportOutlivesAnOutage(t *testing.T) {
	w := newWorld(t, eventstest.Open(t, eventstest.Start(t)))
	failed := make(chan struct{}, 100)
	down := make(chan struct{})
	c := newCollector(t, func(_ int, rw http.ResponseWriter, _ []*trace.Span) bool {
		select {
		case <-down:
			return true
		default:
			rw.WriteHeader(http.StatusServiceUnavailable)
			failed <- struct{}{}
			return false
		}
	})
	stop := w.exportFromNow(w.exporting(c))
	w.ended("a", false, nil)
	<-failed
	<-failed
	w.ended("b", false, nil)
	stop()
	w.ended("c", false, nil)
	w.deliver(w.exporting(c))
	<-failed
	close(down)
	w.ended("d", false, nil)
	if got, want := c.wait(w.ctx, 4), execute("a", "b", "c", "d"); !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// Of two deliverers one exports.
func TestTwoDeliverersExportOnce(t *testing.T) {
	w := newWorld(t, eventstest.Open(t, eventstest.Start(t)))
	c := newCollector(t, nil)
	w.exportFromNow(w.exporting(c))
	w.deliver(w.exporting(c))
	var want []string
	for range 50 {
		w.ended("a", false, nil)
		want = append(want, execute("a")...)
	}
	if got := c.wait(w.ctx, len(want)); !slices.Equal(got, want) {
		t.Errorf("%d spans, want %d", len(got), len(want))
	}
}

// A span that the receiver refuses for good does not hold up the others.
func TestOneBadSpanIsGivenUp(t *testing.T) {
	w := newWorld(t, eventstest.Open(t, eventstest.Start(t)))
	c := newCollector(t, func(_ int, rw http.ResponseWriter, spans []*trace.Span) bool {
		if !slices.ContainsFunc(spans, func(s *trace.Span) bool { return s.Name == "execute_tool bad" }) {
			return true
		}
		rw.WriteHeader(http.StatusBadRequest)
		return false
	})
	stop := w.exportFromNow(w.exporting(c))
	stop() // so that the next ones are sent together
	for _, cmd := range []string{"a", "b", "bad", "c", "d"} {
		w.ended(cmd, false, nil)
	}
	w.ok(w.view.Sync(w.ctx))
	w.deliver(w.exporting(c))
	if got, want := c.wait(w.ctx, 4), execute("a", "b", "c", "d"); !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	w.until("one is given up", func() bool { cur := w.view.SpansCursor(); return cur.GivenUp == 1 && cur.Done == 4 })
}

// A receiver can reject some of the spans that it got.
func TestRejectedSpansAreCounted(t *testing.T) {
	w := newWorld(t, eventstest.Open(t, eventstest.Start(t)))
	c := newCollector(t, func(_ int, rw http.ResponseWriter, _ []*trace.Span) bool {
		one := protowire.AppendVarint(protowire.AppendTag(nil, 1, protowire.VarintType), 1)
		rw.Write(protowire.AppendBytes(protowire.AppendTag(nil, 1, protowire.BytesType), one))
		return true
	})
	stop := w.exportFromNow(w.exporting(c))
	stop()
	w.ended("a", false, nil)
	w.ended("b", false, nil)
	w.ok(w.view.Sync(w.ctx)) // both are sent in one request
	w.deliver(w.exporting(c))
	w.until("one is rejected", func() bool { cur := w.view.SpansCursor(); return cur.GivenUp == 1 && cur.Done == 1 })
}

func TestSpanOfAProcess(t *testing.T) {
	code := func(n int32) *int32 { return &n }
	of := &process.Trace{ID: process.TraceID{0xa1}, Parent: process.SpanID{0xb2}, Flags: 1, State: "x=y"}
	base := process.Summary{
		ID: process.NewID("i1"), Tenant: "t", Host: "h", PID: 42, Started: time.Unix(10, 5), Ended: time.Unix(12, 0),
		Spec: process.Spec{Cmd: "/usr/bin/env", Args: []string{"-c", "ls"}, Cwd: "/w", User: "u", PTY: &process.Size{}, Trace: of},
		Exit: &process.Exit{Code: code(0), Cause: process.CauseExited},
	}
	with := func(change func(*process.Summary)) catalog.EndedProcess {
		s := base
		change(&s)
		return catalog.EndedProcess{Summary: s}
	}
	const errorCode = trace.Status_STATUS_CODE_ERROR
	tests := []struct {
		name    string
		p       catalog.EndedProcess
		span    string
		status  *trace.Status
		want    map[string]any
		without []string
	}{
		{"success", with(func(*process.Summary) {}), "execute_tool env", &trace.Status{}, map[string]any{
			"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "env", "gen_ai.tool.type": "function",
			"process.executable.name": "env", "process.command": "/usr/bin/env", "process.pid": int64(42), "process.exit.code": int64(0),
			"process.working_directory": "/w", "process.user.name": "u", "process.interactive": true,
			"millrace.sandbox.id": "i1", "millrace.process.id": string(base.ID), "millrace.tenant": "t", "millrace.host": "h", "millrace.cause": "exited",
		}, []string{"error.type", "millrace.signal"}},
		{"failure", with(func(s *process.Summary) { s.Exit = &process.Exit{Code: code(3), Cause: process.CauseExited} }), "execute_tool env",
			&trace.Status{Code: errorCode, Message: "exit status 3"}, map[string]any{"process.exit.code": int64(3), "error.type": "3"}, nil},
		{"signal", with(func(s *process.Summary) { s.Exit = &process.Exit{Signal: 9, Cause: process.CauseKilled} }), "execute_tool env",
			&trace.Status{Code: errorCode, Message: "killed: signal 9"}, map[string]any{"millrace.signal": int64(9), "error.type": "killed"}, []string{"process.exit.code"}},
		{"lost", with(func(s *process.Summary) {
			s.Exit = &process.Exit{Cause: process.CauseHostLost, Message: "host h is gone"}
		}), "execute_tool env",
			&trace.Status{Code: errorCode, Message: "host_lost: host h is gone"}, map[string]any{"error.type": "host_lost"}, []string{"process.exit.code"}},
		{"not started", with(func(s *process.Summary) {
			s.Exit, s.Started, s.PID = &process.Exit{Cause: process.CauseNotStarted, Message: "no"}, time.Time{}, 0
		}), "execute_tool env", &trace.Status{Code: errorCode, Message: "not_started: no"}, map[string]any{"error.type": "not_started"}, []string{"process.pid"}},
		{"hidden", with(func(s *process.Summary) { s.Spec = process.Spec{Trace: of} }), "execute_tool command", &trace.Status{},
			map[string]any{"gen_ai.tool.name": "command"}, []string{"process.command", "process.command_args", "process.executable.name"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := spanOf(&tt.p)
			id := process.SpanOf(base.ID)
			if got.Name != tt.span || got.Status.Code != tt.status.Code || got.Status.Message != tt.status.Message || got.Kind != trace.Span_SPAN_KIND_INTERNAL {
				t.Errorf("span %s, status %v; want %s, %v", got.Name, got.Status, tt.span, tt.status)
			}
			if string(got.SpanId) != string(id[:]) || string(got.TraceId) != string(of.ID[:]) || string(got.ParentSpanId) != string(of.Parent[:]) || got.TraceState != "x=y" || got.Flags != 0x301 {
				t.Errorf("span %x of %x in %x with %q and flags %x", got.SpanId, got.ParentSpanId, got.TraceId, got.TraceState, got.Flags)
			}
			if got.StartTimeUnixNano > got.EndTimeUnixNano || got.EndTimeUnixNano != uint64(base.Ended.UnixNano()) {
				t.Errorf("from %d to %d", got.StartTimeUnixNano, got.EndTimeUnixNano)
			}
			attributes := map[string]*common.AnyValue{}
			for _, a := range got.Attributes {
				attributes[a.Key] = a.Value
			}
			for name, want := range tt.want {
				if got := plain(attributes[name]); got != want {
					t.Errorf("%s is %v, want %v", name, got, want)
				}
			}
			for _, name := range tt.without {
				if attributes[name] != nil {
					t.Errorf("%s is %v, want none", name, attributes[name])
				}
			}
		})
	}
}

func plain(v *common.AnyValue) any {
	switch v := v.GetValue().(type) {
	case *common.AnyValue_StringValue:
		return v.StringValue
	case *common.AnyValue_IntValue:
		return v.IntValue
	case *common.AnyValue_BoolValue:
		return v.BoolValue
	}
	return nil
}

// A process without a trace begins one, and long arguments are cut.
func TestRootSpansAndLongArguments(t *testing.T) {
	s := process.Summary{
		ID: process.NewID("i1"), Ended: time.Unix(1, 0), Exit: &process.Exit{Code: new(int32)},
		Spec: process.Spec{Cmd: "a", Args: []string{string(make([]byte, 5000)), string(make([]byte, 5000)), "b"}},
	}
	got := spanOf(&catalog.EndedProcess{Summary: s})
	root := process.RootOf(s.ID)
	if string(got.TraceId) != string(root[:]) || got.ParentSpanId != nil || got.Flags != 0x101 {
		t.Errorf("trace %x, parent %x, flags %x", got.TraceId, got.ParentSpanId, got.Flags)
	}
	for _, a := range got.Attributes {
		if list := a.Value.GetArrayValue(); list != nil {
			sum := 0
			for _, v := range list.Values {
				sum += len(v.GetStringValue())
			}
			if sum != maxArgs || len(list.Values) != 3 {
				t.Errorf("%d arguments of %d bytes, want 3 of %d", len(list.Values), sum, maxArgs)
			}
		}
	}
}

// The log record of a process, and a webhook's payload, name the trace and the span of the process.
func TestEventsOfAProcessNameItsSpan(t *testing.T) {
	of := &process.Trace{ID: process.TraceID{0xa1}, Parent: process.SpanID{0xb2}, Flags: 1}
	exported := *of
	exported.Exported = true
	for _, tt := range []*process.Trace{of, &exported} {
		s := process.Summary{ID: process.NewID("i1"), Started: time.Unix(1, 0), Spec: process.Spec{Cmd: "a", Trace: tt}}
		e := webhook.OfProcess(&s, 1, true, false)[0]
		r, err := logRecord(&e, time.Unix(2, 0))
		if err != nil {
			t.Fatal(err)
		}
		span := tt.SpanFor(s.ID)
		if string(r.TraceId) != string(of.ID[:]) || string(r.SpanId) != string(span[:]) || r.Flags != 1 {
			t.Errorf("exported %v: log record of span %x in trace %x", tt.Exported, r.SpanId, r.TraceId)
		}
		if body, err := e.Payload(); err != nil || !strings.Contains(string(body), `"trace_id":"`+of.ID.String()+`","span_id":"`+span.String()+`"`) {
			t.Errorf("exported %v: %s, %v", tt.Exported, body, err)
		}
	}
}
