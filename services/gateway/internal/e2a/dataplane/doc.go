// Package dataplane is the surface of the routes of e2a that use a sandbox: commands, files, the log
// of its agent, and cancel.
//
// # Commands
// A command is a process like that of any other surface, and its output is a record. The response is
// one JSON object that is written while the command runs, so that an output of any size takes no
// memory. A shell joins the two outputs of a command into one pipe, therefore they are in the order
// in which they were written. The command ends with its request: a client that closes the connection
// ends it, and so does a gateway that shuts down.
//
// JSON is text. Bytes that are not UTF-8 are replaced by U+FFFD in the member output; then the
// response has all bytes in output_b64 as well, for which the record is read a second time.
//
// The member exit_code is there if the command exited. A command that was ended by a signal, that did
// not start, or whose end was not observed has error and message instead.
//
// # Logs
// The log of an agent is the record of the newest process with the tag agent, both outputs in the
// order of the record. It is read backwards, and needs no running sandbox.
package dataplane
