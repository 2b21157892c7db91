// Package files works on a sandbox's files for whoever asks over a stream, in the
// language of package events/file.
//
// # Where paths lead
// Nowhere but into Config.Root: each path is walked by the kernel with that
// directory as its root (openat2, RESOLVE_IN_ROOT), and what is done is done to
// the directory that was found then, by its descriptor. Links that change
// meanwhile change what is found, never where it can be. The kernel's own links
// (/proc/self/fd and its like) are not followed: they are the shim's.
//
// # Who does it
// The server, with its own rights, as E2B's does; what it makes is given to the
// account that the request names. A sandbox is one trust: its users are names.
//
// # Uploads
// A file's new content is written beside it, under a name that Hidden knows, and
// renamed when all of it came: readers see the old or the new one, whole. What is
// left of a write that was cut is removed.
package files
