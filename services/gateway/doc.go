// Package gateway serves clients over HTTP and turns their requests into events. Any
// number of gateways serve the same clients; none holds state that another one lacks.
//
// # The path of a request
// route finds the family of the request and the sandbox that it names. app.go and guard.go reject
// ambiguous requests, serve preflights, authenticate the caller (auth) and limit the body, as the
// family requires. routes.go has the surfaces of each family; a surface decodes the request and
// calls the operations (internal/operations); streams are sent by internal/stream. What the HTTP
// server (fasthttp) does not do is in internal/httpconn.
package gateway
