// Package tracing decides which processes have a span that is exported, by the rules of
// OpenTelemetry's samplers. It does no I/O.
//
// # One decision
// A decision depends on the process and the context of its start only. So the gateway that starts a
// process and the reaper that exports its span decide the same, whenever they do.
package tracing
