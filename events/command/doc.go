// Package command carries commands to hosts, and their replies.
//
// [Queue.Send] stores a [Command] before it returns. The host reads its commands in order
// with [Queue.Commands] and executes each at most once, however often it restarts. The
// outcome of a [Start] is in the process's record; other commands are answered by a [Reply],
// for which [Queue.Call] waits.
package command
