// Package deliver sends events of sandboxes and processes to webhooks.
//
// # Guarantees
// Each event that a webhook subscribes to is sent at least once, and those of one sandbox in
// the order of its record: an event is sent once the previous one was accepted, or given up
// after its last attempt. A crash at any moment loses none. A dead or slow receiver delays no
// other webhook.
//
// # Implementation
// The queue of a webhook is its cursor in the log: a [webhook.Cursor] is the position after
// the delivered events, and names the deliverer of the later ones. A deliverer claims a
// webhook by storing the cursor under compare-and-append, and stores it again as it advances,
// at least every few seconds. Another one takes over a claim once it is older than its holder
// may use it, so that two never send at once. A window of a few events per active webhook is
// kept in memory. Events of processes come from a [lives.Feed], which all webhooks share; the cursor
// has a second position for them.
//
// Spans of commands are exported from one more queue, that of the installation: a cursor in the catalog of
// processes, under the same kind of claim. The id of a span is derived from that of its process, so that
// one that is sent twice is the same.
package deliver
