// Package metrics serves GET /metrics in Prometheus's text format.
//
// # Series
// The series of commands, sandboxes, hosts and webhooks are folded from the log: they are
// the same at every gateway and after any restart. Commands satisfy started = ok + error +
// killed + active, always. The series of requests, streams and latencies, and those of the Go
// runtime and the operating system's process, describe this gateway since its start.
//
// # Labels
// The number of series is bounded: routes are a fixed set, and the first 100 tenants have series
// of their own. No other label value comes from a client.
package metrics
