// Package record opens the records of processes for surfaces that expose positions in
// them: it parses the position of a request, checks it against the record, and limits
// what is read.
//
// # Positions are checked before the first byte of the response
// A position before the first retained event is Gone and one past the end is Invalid. Both
// are a *RangeError with a position that can be read, never an empty response.
package record
