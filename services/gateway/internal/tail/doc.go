// Package tail is the surface for operators: GET /v1/events streams the events of all
// records of a tenant, or of those that an operator selects, as NDJSON or as Server-Sent
// Events.
//
// # Order and position
// Events of one record arrive in order; the order between records is undefined. A line
// names its record (record, sandbox, process) and its seq there. The position from which
// to resume is a time: after=<time> returns everything from that time on by the clocks of
// the writers. The last lines may therefore be repeated; (record, sandbox, process, seq)
// identifies them.
package tail
