// Package accounts implements the operations on a tenant's account: its API keys, the keys
// that sign the tokens of sandboxes, and its load over time.
package accounts
