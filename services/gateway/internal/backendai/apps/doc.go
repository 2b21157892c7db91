// Package apps carries the connections of clients to the services of Backend.AI's sessions, one TCP
// connection for each WebSocket connection.
//
// # Memory
// Neither direction holds more than the window of a stream and one message: an end that does not
// read blocks the other one. What a tunnel may hold counts against the tenant's budget.
//
// # Ends
// The close code reports why a tunnel ended: [websocket.GoingAway] if the service closed its
// connection or the gateway drains, [websocket.TryLater] if nothing accepts connections,
// [websocket.Fault] for other errors. The service sees an orderly end only if the client closed the
// WebSocket connection in order.
package apps
