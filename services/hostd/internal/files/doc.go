// Package files performs operations on a sandbox's files for clients of a stream, in the
// protocol of package events/file.
//
// # Paths
// Paths lead only into Config.Root: the kernel resolves each path with that
// directory as its root (openat2, RESOLVE_IN_ROOT), and operations use
// the descriptor of the directory that was found. Links that change
// meanwhile change the result, but never lead out of the root. The kernel's own links
// (/proc/self/fd and the like) are not followed: they are the shim's.
//
// # Permissions
// The server uses its own permissions, as E2B's does; new files are given to the
// account that the request names. A sandbox is one trust domain: its users are only names.
//
// # Confinement
// A request with a confinement runs on a thread that is restricted before it opens a file
// (Config.Confine), and that ends with the request. So the kernel checks each step, and not
// this package. Content is written to a confined file itself if nothing can be created beside
// it. Opened handles keep what they were opened for.
//
// # Uploads
// A file's new content is written beside it, under a name that Hidden recognizes, and
// renamed when it is complete: readers see the old or the new content. The partial file
// of an interrupted write is removed.
package files
