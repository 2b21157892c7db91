// Package account is the vocabulary of users: what can happen to the account of an address, and
// what follows from it. It does no I/O.
//
// # Accounts
// An account belongs to an [Address] and exists from the first request for a code on. The first
// code that its user enters gives it a tenant, which it keeps for ever. [State.Apply] is the one
// table of what can happen.
//
// # Codes
// A code is stored as a keyed hash. It is valid for [CodeLifetime], until it is used, until
// another one is sent, and for [MaxWrong] wrong attempts. Every attempt that is compared with a
// code is an event, appended under the condition that nothing else was: of any number of
// concurrent attempts with the right code one succeeds, and no more than MaxWrong fail.
//
// # Limits
// [Admit] counts requests in a sliding window. Counts are stored, so that they hold for all
// gateways and after a restart.
package account
