// Package websocket serves WebSocket connections for all surfaces, on
// github.com/gofiber/contrib/websocket.
//
// [Endpoint.Upgrade] validates an upgrade request and runs the surface's handler on the
// connection. The handler receives messages by [Conn.Read] and sends them by [Conn.Write], or
// has [stream.Copy] write a process's record to the connection ([Conn.Stream]).
//
// # Memory
// The gateway's read buffer of 64 KiB is sized for the heads of HTTP requests. To release it,
// the connection moves to a second fiber app with a small buffer. That app reads an upgrade
// request made by this package, which contains nothing of the client's but its key, and then
// the bytes that arrived behind the client's own request. Received messages count against the
// tenant's budget until they are released.
//
// # Sending
// All frames pass one lock in whole messages, so that any number of goroutines may send. The
// write timeout restarts whenever the client has read something. A pong waits for no other
// message: it is sent by the goroutine that holds the lock.
//
// # Limits
// A violation closes the connection: of the protocol with code 1002, of UTF-8 in text with
// 1007, of the fragments per message with 1008, of the message size with 1009. A message beyond
// the tenant's budget closes it with 1013. A client that answers no ping is disconnected.
// Compression is not supported. A panic closes the connection with 1011 and no text.
//
// # End
// A drain calls the surface's [Handler.Drain], and ends the context of its handler. After its
// close frame, the gateway closes the sending side and waits for the client to close the
// connection, so that the client receives everything before it.
package websocket
