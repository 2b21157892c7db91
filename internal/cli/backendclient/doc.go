// Package backendclient is a client of Backend.AI's protocol, for measurements: it signs requests, and
// opens the WebSocket connections of a session.
package backendclient
