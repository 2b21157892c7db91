// Package rate counts the requests of access keys in a rolling window of 15 minutes.
//
// # Precision
// A window consists of buckets of 15 seconds, so that a request is forgotten up to 15 seconds
// late, never early. Each gateway counts the requests that it serves.
package rate
