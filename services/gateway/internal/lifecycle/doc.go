// Package lifecycle implements the operations on existing sandboxes: it finds, pauses,
// resumes and ends them, opens streams to their ports and files, and checks their tokens.
// Package provision creates sandboxes.
package lifecycle
