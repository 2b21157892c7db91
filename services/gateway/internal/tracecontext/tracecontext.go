package tracecontext

import (
	"context"
	"strings"

	"github.com/gofiber/fiber/v2"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/millrace/millrace/events/process"
)

// The headers of W3C Trace Context.
const (
	HeaderParent = "traceparent"
	HeaderState  = "tracestate"
)

// Middleware puts the context of a request's trace into its [context.Context], for [From].
func Middleware(c *fiber.Ctx) error {
	parents := c.Request().Header.PeekAll(HeaderParent)
	if len(parents) != 1 {
		return c.Next()
	}
	parent := string(parents[0]) // before the next call, which reuses the slice
	var states []string
	for _, state := range c.Request().Header.PeekAll(HeaderState) {
		states = append(states, string(state))
	}
	if t := Parse(parent, strings.Join(states, ",")); t != nil {
		c.SetUserContext(With(c.UserContext(), t))
	}
	return c.Next()
}

// Parse parses the values of both headers. It returns nil if the first one is not valid.
func Parse(parent, state string) *process.Trace {
	carrier := propagation.MapCarrier{HeaderParent: parent, HeaderState: state}
	got := trace.SpanContextFromContext(propagation.TraceContext{}.Extract(context.Background(), carrier))
	if !got.IsValid() {
		return nil
	}
	return &process.Trace{
		ID: process.TraceID(got.TraceID()), Parent: process.SpanID(got.SpanID()), Flags: uint8(got.TraceFlags()),
		State: shorten(got.TraceState().String()),
	}
}

// shorten drops members from the end of a tracestate that is too long: the first ones are the newest.
func shorten(state string) string {
	for len(state) > process.MaxTraceState {
		state = state[:max(0, strings.LastIndexByte(state, ','))]
	}
	return state
}

type key struct{}

// With returns a context with the context of a trace, which may be nil.
func With(ctx context.Context, t *process.Trace) context.Context {
	if t == nil {
		return ctx
	}
	return context.WithValue(ctx, key{}, t)
}

// From returns the context of the trace that ctx has; nil: none.
func From(ctx context.Context) *process.Trace {
	t, _ := ctx.Value(key{}).(*process.Trace)
	return t
}
