// Package gateway serves clients over HTTP and turns their requests into events. Any
// number of gateways serve the same clients; none holds state that another one lacks.
//
// # The path of a request
// app.go rejects ambiguous requests, limits the body, serves preflights and probes,
// authenticates the caller (auth) and finds the sandbox (route); a surface decodes the
// request and calls the operations (internal/operations); streams are sent by
// internal/stream. What the HTTP server (fasthttp) does not do is in internal/httpconn.
package gateway
