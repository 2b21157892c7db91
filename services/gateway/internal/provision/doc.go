// Package provision creates sandboxes: new ones, at most one per idempotency key, and forks
// of others.
package provision
