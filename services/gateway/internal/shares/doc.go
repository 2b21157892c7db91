// Package shares serves /v1/shares: links with which onlookers read a terminal without a key.
//
// # Authorization
// A link permits reading one process, or all processes of one sandbox. Package family names the
// routes that accept its token, which is in the header Millrace-Share only. [Shares.Onlooker] returns
// a principal that is limited to the sandbox, to the process, and to the events up to a seq.
//
// # Ends
// Each request synchronizes the view with the log, so that a revoked link is rejected by the next
// request at every gateway. Open streams end when the view shows that the link was revoked, and when
// it expires.
package shares
