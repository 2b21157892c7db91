// Package persist sends what is said in conversations to the persistence backends of their tenants.
//
// # Guarantees
// Each message of a conversation whose client named a backend is sent at least once, and in the order
// of the runtime's record: a request is sent once the one before was accepted, and the messages of a
// sandbox once those of the conversation's previous sandbox were. A crash at any moment loses none. A
// request that fails is repeated with growing pauses for as long as the record exists. A dead or slow
// backend delays no other conversation.
//
// # Implementation
// The queue of a sandbox is its runtime's record, and a [persistence.Progress] is the place in it. All
// reapers read the records. The one that has something to send claims the progress by
// compare-and-append, renews the claim while a request runs, and stores the result with the new place.
// After a failure it releases the claim, and the pause follows from what is stored, so that any reaper
// continues.
package persist
