// Package httpclient sends the HTTP requests of codex clients from their sandbox.
//
// Every connection, also after a redirect, goes through the sandbox's egress proxy by CONNECT:
// the host that runs the sandbox resolves the name, checks the address that it dials and applies
// the sandbox's rules. Nothing is dialed here.
package httpclient
