package process_test

import (
	"maps"
	"reflect"
	"testing"

	"github.com/millrace/millrace/events/process"
)

func TestEnvironmentHasTheContextOfTheTrace(t *testing.T) {
	const id = process.ID("01arz3ndektsv4rrffq69g5fav-i1")
	trace := process.Trace{ID: process.TraceID{0xab, 15: 1}, Parent: process.SpanID{7: 2}, Flags: 1}
	stated, exported := trace, trace
	stated.State, exported.Exported = "a=b", true
	const head = "00-ab000000000000000000000000000001-"
	tests := []struct {
		name string
		spec process.Spec
		want map[string]string
	}{
		{"no trace", process.Spec{Env: map[string]string{"A": "1"}}, map[string]string{"A": "1"}},
		{"only the span of the request", process.Spec{Trace: &trace}, map[string]string{"TRACEPARENT": head + "0000000000000002-01"}},
		{"a state", process.Spec{Trace: &stated}, map[string]string{"TRACEPARENT": head + "0000000000000002-01", "TRACESTATE": "a=b"}},
		{"a span of its own", process.Spec{Trace: &exported}, map[string]string{"TRACEPARENT": head + process.SpanOf(id).String() + "-01"}},
		{"a state of the start without a parent", process.Spec{Env: map[string]string{"TRACESTATE": "x=y"}, Trace: &trace}, map[string]string{"TRACEPARENT": head + "0000000000000002-01"}},
		{"a parent of the start", process.Spec{Env: map[string]string{"TRACEPARENT": "x"}, Trace: &stated}, map[string]string{"TRACEPARENT": "x"}},
		{"the exact environment", process.Spec{Exact: true, Trace: &trace}, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			before := maps.Clone(tt.spec.Env)
			if got := tt.spec.EnvOf(id); !maps.Equal(got, tt.want) {
				t.Errorf("EnvOf = %v, want %v", got, tt.want)
			}
			if !maps.Equal(tt.spec.Env, before) {
				t.Errorf("EnvOf changed the start's own environment to %v", tt.spec.Env)
			}
		})
	}
}

func TestTracesFromMessagesAreChecked(t *testing.T) {
	id, parent := make([]byte, 16), make([]byte, 8)
	id[0], parent[0] = 1, 1
	tests := []struct {
		name       string
		id, parent []byte
		flags      uint64
		state      string
		ok         bool
	}{
		{"valid", id, parent, 255, "a=b", true},
		{"no id", make([]byte, 16), parent, 0, "", false},
		{"no parent", id, make([]byte, 8), 0, "", false},
		{"short id", id[:15], parent, 0, "", false},
		{"long parent", id, id, 0, "", false},
		{"large flags", id, parent, 256, "", false},
		{"line break in the state", id, parent, 0, "a=b\n", false},
		{"long state", id, parent, 0, string(make([]byte, process.MaxTraceState+1)), false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := process.NewTrace(tt.id, tt.parent, tt.flags, tt.state, true)
			if (err == nil) != tt.ok {
				t.Fatalf("NewTrace: %v, want ok %v", err, tt.ok)
			}
			if err == nil {
				if again, err := process.ParseTrace(process.AppendTrace(nil, got)); err != nil || !reflect.DeepEqual(again, got) {
					t.Errorf("got %+v, %v after a round trip, want %+v", again, err, got)
				}
			}
		})
	}
}

func TestIDsOfSpansFollowFromTheProcess(t *testing.T) {
	a, b := process.ID("01arz3ndektsv4rrffq69g5fav-i1"), process.ID("01arz3ndektsv4rrffq69g5fav-i2")
	if again := process.SpanOf(a); process.SpanOf(a) != again || process.SpanOf(a) == process.SpanOf(b) || process.RootOf(a) == process.RootOf(b) {
		t.Error("ids of spans or traces do not depend on the process alone")
	}
}
