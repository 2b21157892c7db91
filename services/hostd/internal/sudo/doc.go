// Package sudo is the sudo of places that are made of the host's own files, whose
// sudoers are not theirs. It is part of the shim's binary; what is called sudo there is
// a set-uid stub that executes it (package namespace).
//
// # Who may do what
// `user` (uid 1000) and root may run anything as anybody, without a password, as in
// E2B's templates; nobody else may run anything. Root is the place's: it reaches no
// further than a process that a client starts as root.
//
// # As the original
// The command replaces this program, so that its signals, its end and its place in a
// terminal are its own; only -b leaves it in the background. The environment is made
// anew as Debian's sudo makes it, and keeps besides what tells programs of the way to
// the network. Options are the original's; what needs another policy than this one
// (-R, -D, -T, -e, -a, -c, -r, -t, -U, --host) is refused. Errors of its own end with 1,
// a command that cannot be executed with 126 or 127.
//
// # Where there is no root
// A place that has one user only, as under a hostd that is not root, runs the command as
// he is. He owns all that root would own.
package sudo
