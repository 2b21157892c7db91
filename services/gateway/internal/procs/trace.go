package procs

import (
	"context"

	"github.com/millrace/millrace/events/process"
	"github.com/millrace/millrace/events/tracing"
	"github.com/millrace/millrace/services/gateway/internal/tracecontext"
)

// traceOf returns the context of the request's trace for the record of a process; nil: none.
func traceOf(ctx context.Context, exported tracing.Sampler) *process.Trace {
	t := tracecontext.From(ctx)
	if t == nil {
		return nil
	}
	out := *t
	out.Exported = exported.Samples("", t)
	return &out
}
