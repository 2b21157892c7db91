// Package due decides what happens to a sandbox, and when.
//
// [Of] is the only place that knows: it depends on nothing but its arguments. Services append
// the events that it returns by compare-and-append, so that any number of them may call it: the
// first one succeeds, and the others find that nothing is due any more.
//
// # Precedence
// Of several actions that are due, the first of these comes first:
//
//   - [HardEnd]: the sandbox ends, in any phase. No request moves a hard end.
//   - [Warning]: the hard end is near.
//   - [Idle]: no client has extended the deadline, the sandbox did not start in time, or it has
//     been paused for too long. It ends, or it is paused.
//   - [Detached]: a session has waited for its client for too long. The session ends.
package due
