// Package usage is the vocabulary of what tenants use: facts about single sandboxes and
// conversations, and their totals per day. It does no I/O.
//
// # Facts
// A [Fact] is what one sandbox or conversation used, day by day. Its writer replaces it as usage
// grows, and once at the end. If the host died, the fact keeps the last known values and says so.
// A fact that has ended does not change any more, unless its conversation is resumed.
//
// # Conversations
// The fact of a conversation counts what its agents report in the records of its runtimes. It has the
// [Position] up to which they were counted, so that nothing is counted twice.
//
// # Days
// Days are those of UTC. Usage between two measurements counts for the day of the second one.
// CPU time is reported in whole seconds per day, so that the seconds of a period are the sum of
// those of its days.
//
// # Prices
// Only CPU time has a price ([Price]). The price of a day is rounded up to a whole cent, per
// tenant. Tokens of models are counted and cost nothing.
package usage
