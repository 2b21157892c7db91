// Package port proxies requests to the servers in sandboxes: HTTP/1.1, and the
// protocols that it upgrades to, such as WebSocket. The request names the port in its
// Host's first label, <port>-<sandbox>, or in the headers of E2B's SDKs.
//
// # Authorization
// The sandbox's id, which cannot be guessed, is sufficient, unless the sandbox was
// created without public traffic. Then its traffic token is required as well.
//
// # What is preserved
// Method, path, query, headers and body are passed on unchanged, except for headers
// that concern one connection. A body of more than 64 KiB, or of unknown length, is
// streamed. X-Forwarded-For, -Host and -Proto are added.
// A response is sent as it arrives, even while the request's body is still being
// sent. In that case the connection is closed once the client has stopped sending, or
// after half a minute.
//
// A port that its sandbox declares as HTTPS is contacted with TLS; its certificate is
// not verified.
//
// # Failures
// A response that breaks off (because of the server, its sandbox, the host or the log)
// closes the client's connection before its end, so that it is never taken for
// complete. Without a response yet, the client gets a 502 in the format of E2B's proxy.
package port
