// Package processes has the commands that start processes and use them: run, sandbox exec,
// attach, ps, logs, export and kill.
//
// # A local command as if it ran here
// attach.go connects the local standard streams and signals to a process. screen.go writes
// its output, keyboard.go reads a terminal, and package client forwards the input. run.go
// creates the sandbox and removes it, also after an interrupt.
//
// # No input that the user did not type
// For attach, history is everything recorded before attach began; later output is live,
// also after a broken connection. Everything that logs shows is history.
package processes
