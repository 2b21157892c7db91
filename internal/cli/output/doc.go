// Package output is what commands give back: bytes on standard streams and an exit code.
//
// # Untrusted text
// Names and messages may come from sandboxes. [Printable] and [Plain] replace control
// characters in them. A [Writer] filters recorded output that is shown at a terminal: a
// terminal answers the queries in it, and the answers would become input of the process
// or of the user's shell.
//
// # Exit codes
// An [ExitError] carries the exit code of a remote command, or [ExitMillrace] if Millrace
// itself failed. [ExitCode] returns the code and the message for any error.
package output
