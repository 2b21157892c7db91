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
// Each gateway through which a sandbox is used synchronizes it. One of them has stored in the record of the sandbox
// that it does ([sandbox.Mounted]): the first one, until it ends, and then another one. The end of the sandbox waits
// until that gateway has stored what has changed, which [sandbox.Unmounted] says, with what was not stored.
// A gateway that has not mounted a sandbox does not know what was removed in it.
package mounts
