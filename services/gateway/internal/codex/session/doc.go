// Package session serves one connection of a codex client: it reads requests from a
// [Transport], runs them in a sandbox and sends answers and notifications.
//
// # A session is a record
// Nothing of a session is kept here that another gateway lacks. Its processes are found by
// their names ([Processes]), their output is read from their records, and the numbers of the
// protocol's events follow from the positions in the record ([translator]). A client that was
// cut off resumes at any gateway that its [Attachment] allows.
//
// # Concurrency and order
// Requests run concurrently. Answers about one process leave in the order of their requests,
// except that a write that waits for its process to read lets later answers pass after a
// second. Starts and writes of one process run in order. Notifications of a process leave in
// the order of its record and after the answer to its start.
//
// # Resuming
// Notifications of a resumed session begin behind the first process/read of each process: its
// answer is a small page, and everything behind it is pushed. The released client applies the
// answer while it receives the notifications, and kills a process for which too many of them
// wait. So the page is small ([recoveryPage]) and is given a moment ([recoveryHold]). A client
// that reads nothing receives new events after [resumeGrace].
//
// # Memory
// A connection has no queue. A message is written by the goroutine that made it, one at a
// time, and the next piece of a record is read once the previous one was written. The number
// and the size of requests in flight are limited; the reader waits when a limit is reached.
// Of the large answers two exist at once.
package session
