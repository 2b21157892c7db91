// Package blob stores files in the log's object stores: parts of templates, parts of copies
// of hosts' files, the files that builds copy, and the bytes of workspaces' files.
//
// # Parts
// A part is an object named by its SHA-256, so that a shared part is stored once and an
// interrupted upload resumes with the missing parts. Whether a part is in use is not known
// here: [Store.SweepParts] removes the parts that its caller does not reference and that are
// older than any transfer. A caller that relies on a part asks for it first, which keeps the
// part from being swept for a while.
//
// # Limits
// Each store has a size limit and rejects uploads beyond it with an error of kind.Exhausted,
// so that other streams keep their disk space.
package blob
