// Package sudo is the sudo of sandboxes that are made from the host's own files, whose
// sudoers do not apply to them. It is part of the shim's binary; the sandbox's `sudo` is a
// set-uid stub that executes it (package namespace).
//
// # Policy
// `user` (uid 1000) and root may run anything as any user, without a password, as in E2B's
// templates; other users may run nothing. Root is the sandbox's: it has no more rights than
// a process that a client starts as root.
//
// # Compatibility
// The command replaces this program, so its signals, its exit and its place in a terminal
// are its own; only -b runs it in the background. The environment is reset as by Debian's
// sudo, but keeps the variables of the egress proxy. Options are those of Debian's sudo; options
// that need another policy (-R, -D, -T, -e, -a, -c, -r, -t, -U, --host) are rejected.
// Sudo's own errors exit with 1, a command that cannot be executed with 126 or 127.
//
// # Without root
// A sandbox with a single user, as under a hostd without root, runs the command as that
// user, which owns everything that root would own.
package sudo
