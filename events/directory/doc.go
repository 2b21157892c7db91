// Package directory stores the accounts of users in the log, with the limits on their requests and
// the keys of their tokens, and keeps a view of them. What it stores is the vocabulary of
// package account.
//
// # Conditions
// The last message of a subject is valid, and replaces the one before by compare-and-append to
// that subject: accounts do not wait for each other. Each message has a random mark, so that an
// append whose acknowledgment was lost is not mistaken for that of another writer with the
// same content.
//
// # Views
// Only gateways fold this stream. A decision is based on a view that is synced first, and holds
// because the append fails if anything else was stored meanwhile.
package directory
