// Package ledger has the credits of tenants: payments, refunds, and what the usage of each day costs.
//
// # Ledger
// The ledger of a tenant is a set of [Entry] values and of days ([Day]). The balance is their sum,
// in cents. Nothing is ever removed from it.
//
// # Once
// An entry has an id, and is stored once however often and in whatever order it is added. Only a refund
// may grow. A day is replaced by compare-and-append until it is settled; its first price stays.
//
// # Automatic payments
// A [Topup] has the settings and the progress of automatic payments. [Topup.Apply] is the one table of what
// can happen. A payment is stored before it is requested, with a number, and the entry of its result
// has the number in its id. So a gateway that takes over repeats the request of the one before.
//
// # Consistency
// The last message of a subject is valid. Each message has a random mark, so that an append whose
// acknowledgment was lost is not mistaken for that of another writer with the same content.
package ledger
