// Package sandboxes serves e2a's /v1/sandboxes: generic isolated execution without a conversation.
//
// # Creating
// All of a request is validated before anything is created: every 400 precedes a 501, and a 501
// precedes a 503 or 409. A response 201 means that the sandbox runs. A create does not wait for
// free capacity.
//
// # Agents
// A sandbox with an agent is created, and then its agent is started; a response 201 means that both are
// recorded. A request with an idempotency key that is repeated continues where the first one stopped.
//
// # Visibility
// A tenant's sandboxes are listed whichever surface created them, and for a minute after their
// end. Another tenant's sandbox and one that does not exist have the same response.
//
// # Metadata
// Metadata is any JSON object. The platform's own names replace a client's.
package sandboxes
