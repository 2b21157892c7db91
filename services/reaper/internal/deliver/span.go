package deliver

import (
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"

	common "go.opentelemetry.io/proto/otlp/common/v1"
	resource "go.opentelemetry.io/proto/otlp/resource/v1"
	trace "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"github.com/millrace/millrace/events/catalog"
	"github.com/millrace/millrace/events/process"
)

// maxArgs is the maximum number of bytes of a span's arguments.
const maxArgs = 8 << 10

// hiddenTool is the name of the tool in the span of a process whose command is not kept.
const hiddenTool = "command"

// Flags of a span whose parent is known to be in another service.
const remoteParent = uint32(trace.SpanFlags_SPAN_FLAGS_CONTEXT_HAS_IS_REMOTE_MASK | trace.SpanFlags_SPAN_FLAGS_CONTEXT_IS_REMOTE_MASK)

// encodeSpans encodes spans as OpenTelemetry's ExportTraceServiceRequest, which has the same bytes as
// TracesData.
func encodeSpans(of map[string]string, spans []*trace.Span) ([]byte, error) {
	var attributes []*common.KeyValue
	for _, name := range slices.Sorted(maps.Keys(of)) {
		attributes = append(attributes, text(name, of[name]))
	}
	return proto.Marshal(&trace.TracesData{ResourceSpans: []*trace.ResourceSpans{{
		Resource:   &resource.Resource{Attributes: attributes},
		ScopeSpans: []*trace.ScopeSpans{{Scope: &common.InstrumentationScope{Name: "millrace"}, Spans: spans}},
	}}})
}

// hasSpan reports whether a process has a span: a command, or what was started for a request with a trace.
func hasSpan(s *process.Summary) bool { return !s.Spec.Helper || s.Spec.Trace != nil }

// spanOf returns the span of a process that ended, by the semantic conventions of OpenTelemetry for tools
// that run commands.
func spanOf(p *catalog.EndedProcess) *trace.Span {
	s := &p.Summary
	tool := hiddenTool
	if s.Spec.Cmd != "" {
		tool = clip(path.Base(s.Spec.Cmd), maxError)
	}
	began := s.Started
	if began.IsZero() || began.After(s.Ended) {
		began = s.Ended
	}
	id, root := process.SpanOf(s.ID), process.RootOf(s.ID)
	out := &trace.Span{
		TraceId: root[:], SpanId: id[:], Name: "execute_tool " + tool, Kind: trace.Span_SPAN_KIND_INTERNAL,
		StartTimeUnixNano: uint64(began.UnixNano()), EndTimeUnixNano: uint64(s.Ended.UnixNano()),
		Attributes: spanAttributes(s, tool), Status: &trace.Status{},
		Flags: uint32(trace.SpanFlags_SPAN_FLAGS_CONTEXT_HAS_IS_REMOTE_MASK) | sampled,
	}
	if t := s.Spec.Trace; t != nil {
		out.TraceId, out.ParentSpanId, out.TraceState, out.Flags = t.ID[:], t.Parent[:], t.State, remoteParent|uint32(t.Flags)
	}
	if !s.Exit.OK() {
		out.Status = &trace.Status{Code: trace.Status_STATUS_CODE_ERROR, Message: endOf(s.Exit)}
	}
	return out
}

const sampled = 1

func spanAttributes(s *process.Summary, tool string) []*common.KeyValue {
	all := []*common.KeyValue{
		text("gen_ai.operation.name", "execute_tool"), text("gen_ai.tool.name", tool), text("gen_ai.tool.type", "function"),
		text("millrace.process.id", string(s.ID)), text("millrace.sandbox.id", string(s.ID.Sandbox())),
		text("millrace.tenant", s.Tenant), text("millrace.host", s.Host), text("millrace.cause", string(s.Exit.Cause)),
	}
	if s.Spec.Cmd != "" {
		all = append(all, text("process.executable.name", tool), text("process.command", clip(s.Spec.Cmd, maxArgs)),
			&common.KeyValue{Key: "process.command_args", Value: argv(&s.Spec)})
	}
	if s.Spec.Cwd != "" {
		all = append(all, text("process.working_directory", s.Spec.Cwd))
	}
	if s.Spec.User != "" {
		all = append(all, text("process.user.name", s.Spec.User))
	}
	if s.Spec.Tag != nil {
		all = append(all, text("millrace.tag", clip(*s.Spec.Tag, maxError)))
	}
	if s.PID != 0 {
		all = append(all, number("process.pid", int64(s.PID)))
	}
	if s.Spec.PTY != nil {
		all = append(all, &common.KeyValue{Key: "process.interactive", Value: anyValue(true)})
	}
	if s.Exit.Code != nil {
		all = append(all, number("process.exit.code", int64(*s.Exit.Code)))
	}
	if s.Exit.Signal != 0 {
		all = append(all, number("millrace.signal", int64(s.Exit.Signal)))
	}
	if !s.Exit.OK() {
		all = append(all, text("error.type", errorType(s.Exit)))
	}
	return all
}

func number(key string, n int64) *common.KeyValue {
	return &common.KeyValue{Key: key, Value: &common.AnyValue{Value: &common.AnyValue_IntValue{IntValue: n}}}
}

// argv returns the program's arguments with its name, up to maxArgs bytes.
func argv(s *process.Spec) *common.AnyValue {
	var list common.ArrayValue
	room := maxArgs
	for _, arg := range append([]string{s.Cmd}, s.Args...) {
		if room <= 0 {
			break
		}
		list.Values = append(list.Values, anyValue(clip(arg, room)))
		room -= len(arg)
	}
	return &common.AnyValue{Value: &common.AnyValue_ArrayValue{ArrayValue: &list}}
}

// errorType returns the class of a failure: the exit code of a process that ended by itself, or the cause.
func errorType(x *process.Exit) string {
	if x.Cause == process.CauseExited && x.Code != nil {
		return strconv.Itoa(int(*x.Code))
	}
	return string(x.Cause)
}

// endOf describes a failure.
func endOf(x *process.Exit) string {
	switch {
	case x.Cause == process.CauseExited && x.Code != nil:
		return "exit status " + strconv.Itoa(int(*x.Code))
	case x.Signal != 0:
		return strings.TrimSpace(string(x.Cause) + ": signal " + strconv.Itoa(int(x.Signal)))
	case x.Message != "":
		return clip(string(x.Cause)+": "+x.Message, maxError)
	}
	return string(x.Cause)
}
