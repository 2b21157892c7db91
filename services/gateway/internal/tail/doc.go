// Package tail is the operators' surface: GET /v1/events gives the events of all
// records a tenant has, or that an operator asks for, as NDJSON or as
// Server-Sent Events.
//
// # Order and place
// Events of one record come in order; nothing is promised about those of two. A
// line says which record it is of (record, sandbox, process) and its seq there.
// The place to come back with is a time: after=<time> gives everything from that
// time on by the clocks of those who wrote it, so that the last lines may come
// twice; (record, sandbox, process, seq) tells.
package tail
