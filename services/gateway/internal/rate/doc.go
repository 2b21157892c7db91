// Package rate counts requests by key in rolling periods of up to 15 minutes, for all families.
//
// # Precision
// A period consists of buckets of 15 seconds, so that a request is forgotten up to 15 seconds
// late, never early. Each gateway counts the requests that it serves, and passes its counts on to
// the others every second ([Counts.Share]). A key may therefore exceed its limit by what the other
// gateways serve within about a second. No request waits for the log.
package rate
