// Package gateway is the front door: it speaks HTTP to clients and the record to
// everybody else. Any number of gateways serve the same clients; none holds
// state that another one lacks.
//
// # A request's way
// app.go refuses what is ambiguous, bounds the body, answers browsers'
// preflights and probes, finds out who asks (auth) and for which sandbox
// (route); a surface decodes it and asks the core; what streams leaves through
// internal/stream.
package gateway
