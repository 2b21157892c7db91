// Package mounts shows the files of workspaces in sandboxes, below [Dir].
//
// # Synchronization
// A mounted sandbox has copies of the files. A synchronization compares three lists: the files of the
// workspace, those of the sandbox, and both as of the last synchronization. A file that changed on one
// side is copied to the other one, and one that was removed is removed. If both changed, the later change
// is valid. Files are replaced as a whole on both sides.
//
// A sandbox is synchronized when it is mounted, every [Interval], when it is warned of its end, when a
// client detaches, and before it is destroyed. That is no use of the sandbox.
//
// # Links
// Only regular files are copied. Symbolic links are neither read nor written through.
//
// # Gateways
// The gateway through which a sandbox is used synchronizes it, and stores that in the record of the sandbox
// ([sandbox.Mounted]). The end of the sandbox waits until the gateway has stored what has changed, which
// [sandbox.Unmounted] says, with what was not stored. When a gateway ends, another one takes over its sandboxes.
// A gateway that has not mounted a sandbox does not know what was removed in it.
package mounts
