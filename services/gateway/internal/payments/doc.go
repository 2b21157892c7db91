// Package payments sells credits through Stripe: a user pays on a page of Stripe, and later payments may be
// automatic. It stores what was paid in the ledger (package ledger).
//
// # Once
// A webhook may arrive many times, in any order, and at any gateway. The id of an entry is that of the
// payment, so each one counts once. A webhook is answered after its entry is stored: if the gateway
// dies before that, Stripe sends it again.
//
// # Automatic payments
// Every gateway looks for due payments. A payment is stored with a number before it is requested, and the
// number is in the idempotency key of the request and in the id of the entry. So a request that is
// repeated by another gateway is the same payment.
//
// # Requests
// The package has its own client of the three requests that it needs. The init function of Stripe's
// library starts a process (uname), in every command of the program that links it.
package payments
