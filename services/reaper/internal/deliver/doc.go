// Package deliver sends lifecycle events to webhooks.
//
// # Promise
// Each event that a webhook wants is sent at least once, and those of one sandbox in
// the order of its record: the next is sent when the one before was taken, or was given
// up after the last attempt. A kill at any moment loses none. A receiver that is dead or
// slow delays no other webhook.
//
// # How
// The queue of a webhook is its cursor in the log: a [webhook.Cursor] says which events are
// behind it, and which deliverer works on those ahead. A deliverer claims a webhook by
// storing the cursor under compare-and-append, and stores it again as it advances, at
// least every few seconds. Another one takes over a claim that was silent for longer than
// its holder goes on without storing it, so that two never send at once. In memory is a
// window of a few events for each webhook that has something to deliver.
package deliver
