// Package sandboxes has the commands that create sandboxes and use them: sandbox, snapshot,
// cp, port-forward and codex.
//
// # Untrusted files
// cp unpacks the tar of a sandbox below the destination and touches nothing outside of it.
package sandboxes
