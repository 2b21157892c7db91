// Package port carries requests to the servers in sandboxes: HTTP/1.1, and what
// it is switched to, such as WebSocket. The request names the port in its Host's
// first label, <port>-<sandbox>, or in the headers of E2B's SDKs.
//
// # Who may
// Whoever knows the sandbox's id, which cannot be guessed, unless the sandbox was
// made without public traffic: then its traffic token is wanted, too.
//
// # What is kept
// Method, path and query, headers and body are passed on as they came, but for
// what belongs to one connection only; a body of more than 64 KiB, or of no told
// length, is passed on while it comes. X-Forwarded-For, -Host and -Proto are added.
// An answer leaves as it comes, also while the request's body is still on its way:
// then it ends the connection, when the client has stopped sending, or half a
// minute later.
//
// A port that its sandbox says serves HTTPS is spoken to in TLS; its certificate is
// not checked.
//
// # What breaks
// An answer that breaks off (the server, its sandbox, the host, the log) closes
// the client's connection before its end: it is never taken for whole. Where
// there is no answer yet it is a 502, in the words of E2B's proxy.
package port
