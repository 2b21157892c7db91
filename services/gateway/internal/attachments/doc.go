// Package attachments attaches clients to their sessions for the surfaces whose clients resume.
//
// # One client
// A session has at most one client at all gateways together: attaching and detaching are
// compare-and-appends to [attachment.Session]. [Attachment.Lost] is closed when another gateway
// has the session or when the session has ended.
//
// # Ends
// A session whose client does not come back ends by its policy: package due says when. The gateway
// that stores this calls the surface's [End], and stores that the session has ended when it has returned nil. If
// the gateway dies before, another one repeats it. In a paused sandbox only the sandbox itself can
// be ended: a session that has processes of it cannot be resumed any more, and ends when the
// sandbox runs again.
//
// # Repair
// A session that is stored as attached here, but has no client, is detached by the next pass:
// the store was not reachable when the client left.
package attachments
