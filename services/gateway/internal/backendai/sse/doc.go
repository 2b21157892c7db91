// Package sse reports the events of Backend.AI's sessions and background tasks as Server-Sent
// Events.
//
// # Events
// Nothing is stored for this surface: an event of a session is an event of its sandbox's record
// under the names of Backend.AI, those of its documentation and those of its newer servers. The
// background tasks are the commands of batch sessions, each with the UUID of its session.
//
// # Position
// The id of an event is its [Cursor]: its place in the log and its number among the names of one
// event there. A client that reconnects with it, at any gateway, gets what follows, each event once.
// Sandboxes that have left the view have no events.
//
// # Cost
// A [Hub] follows the log once for all listeners of a gateway. It keeps the newest events of each
// tenant that has listeners, encoded. A listener that is further behind reads the log itself.
package sse
