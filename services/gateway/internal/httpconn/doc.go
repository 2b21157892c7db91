// Package httpconn is what working on fasthttp costs. fasthttp reads a request, calls a
// handler, and writes a response that is complete by then. This package takes connections
// over from it for everything else: streams, responses of other servers, and responses
// that leave before the request has arrived.
//
// # What each file works around
//   - listen.go: the server closes a connection when its hijack returns, so it could serve no
//     request after a stream; and it stops at the first Accept that fails for lack of
//     descriptors.
//   - conn.go: a hijacked connection is a bare socket. It gets back the bytes that the server
//     has read ahead, chunked encoding, a write timeout that restarts with progress, detection
//     of a client that left, and a way back to the server for the next request.
//   - conns.go: the server neither counts hijacked connections nor waits for them when it shuts
//     down.
//   - handover.go: the server keeps its large read buffer for each connection whose protocol
//     was switched.
//   - head.go: the response of a hijacked request is not sent, so neither are the headers that
//     middleware set.
//   - relay.go: the server cannot send a response with unknown length, trailers or a switched
//     protocol while it arrives.
//   - early.go: the server sends no response while the body of its request still arrives. The
//     body would be read as the next request.
//   - answer.go: the server does not report whether a response was received, and keeps it in
//     memory without limit for a client that does not read.
//   - body.go: the server limits no streamed body, does not time out its reads one by one, and
//     reads an unread rest as the next request.
//   - upload.go: the server's reader of a body must not be used after the handler has returned,
//     but a transport that sends it on does not stop in time.
//   - left.go, connected.go, gone_*.go: a handler is not told that its client left, and a body
//     without a length that was cut short looks complete.
//   - unsent_*.go: the server does not report what the client's machine has acknowledged.
//   - socket.go: a write timeout that restarts with progress must be below TLS, which sends nothing
//     after a write that timed out.
//   - secure.go: the questions of left.go, gone_*.go and unsent_*.go are about the socket below TLS,
//     and the end of TLS is a message that must be decrypted to be recognized.
//   - framing.go: the server accepts requests whose framing a proxy in front may read
//     differently (request smuggling).
//   - unused.go: while it shuts down, the server waits for the first request on connections
//     that clients opened in advance.
//
// # Keep-alive
// A connection returns to the server after a stream that ended in order if it came from
// [Listen] and its request was read completely. Any other connection is closed.
package httpconn
