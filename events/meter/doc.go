// Package meter stores in the log what tenants use, and keeps a view of it. What it stores is the
// vocabulary of package usage.
//
// # Conditions
// The last message of a subject is valid, and replaces the one before by compare-and-append. Each
// message has a random mark, so that an append whose acknowledgment was lost is not mistaken for
// that of another writer with the same content.
//
// # Writers
// The host of a sandbox writes its fact, without a view, while the sandbox runs and at its end. The
// reaper ends the facts of sandboxes whose hosts are lost, and writes those of conversations.
package meter
