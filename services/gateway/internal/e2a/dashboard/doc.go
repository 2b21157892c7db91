// Package dashboard is the surface of e2a's usage, dashboards and credits: what a tenant has used this
// month, on each day, and by which sandboxes. It encodes what package meter has in its view.
//
// # Consistency
// A response has everything that was stored before the request, on every gateway. Hosts store the
// usage of a running sandbox at least once a minute.
//
// # Numbers
// CPU time is in whole seconds per day, so that the numbers of a period are the sums of those of
// its days. A sandbox and a conversation count on the day on which they started.
//
// # Credits
// The balance is the sum of the transactions: payments, refunds, and the price of each day. Without a
// payment provider, a valid request for a payment returns Unimplemented.
package dashboard
