// Package accounts implements the operations on a tenant's account: its API keys, the keys
// that sign the tokens of sandboxes, and its load over time; and how people sign up and log in
// ([Users]).
//
// # Decisions
// What a user may do is decided by package account on a view that is up to date, and stored under
// the condition that the account did not change: limits and codes hold across gateways, and a
// gateway that dies leaves no half-done step. A code that was stored and never sent counts
// against the limit, and nothing else remains of it.
package accounts
