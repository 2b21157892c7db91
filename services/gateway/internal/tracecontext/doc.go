// Package tracecontext reads the context of the trace to which a request belongs: the headers
// traceparent and tracestate of W3C Trace Context.
//
// # Guarantees
// A traceparent that is not valid, or sent twice, counts as none, and a tracestate that is not valid
// as empty: the request is served as without them. What [From] returns is valid, and its state has at
// most [process.MaxTraceState] bytes.
package tracecontext
