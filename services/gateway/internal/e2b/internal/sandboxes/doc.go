// Package sandboxes serves E2B's sandboxes: how they are created, listed, paused, resumed and
// ended.
package sandboxes
