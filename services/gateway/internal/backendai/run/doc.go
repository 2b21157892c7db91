// Package run turns the record of a run into the results that Backend.AI's clients expect.
//
// # A run is a process
// The process of a run prints one JSON object per line: output, results, the ends of the steps of a
// batch, requests for input, and the exit code. A [Collector] reads the record and makes
// [Result]s: each has the output since the one before, and ends where the status changes.
//
// # Position
// A [Position] is where a result ended. It depends on the record alone, so that any gateway
// continues from there, and a line that is split between two events is read as a whole.
package run
