// Package ops serves metrics and probes of a running role on an address of its own.
//
// # Routes
// GET /metrics returns all metrics of the role in Prometheus's text format. GET /livez
// succeeds while the program runs. GET /readyz succeeds once every service of the role is
// ready, and otherwise lists those that are not.
//
// # Access
// An address that other machines can reach requires a token, which a client sends as
// "Authorization: Bearer". It protects /metrics; probes need none.
//
// # Failures
// No service waits for a scrape. A metric that needs the log is bounded by a timeout, and a
// failed one leaves out its series, never the others.
package ops
