// Package confine enforces a process.Confinement: it makes the restrictions that a child of the
// shim takes on before it executes its program, and that all its descendants inherit. A thread
// that performs a file operation for a client takes on those for files.
//
// # How
// Files are restricted by landlock, the network by a seccomp filter. Neither needs a privilege
// or a namespace, so that both work behind the filter of the namespace driver, which allows no
// mounts. A child also loses the ability to gain privileges (no_new_privs), and landlock keeps
// it from tracing processes outside of its confinement and from changing mounts. New returns
// kind.Unimplemented where the kernel lacks one of the two, such as gVisor's.
//
// # A path with less access than one above it
// Landlock only adds rights: a rule for a directory applies to all below it. For a directory
// that is readable below a writable one, such as .git in a workspace, New therefore adds one
// rule for each other entry of the writable directory instead of one for itself. The entries
// that exist are writable, with all below them; in the directory itself no entry can be
// created, removed or renamed. A directory on the way to a denied path can not be listed
// either. The alternative, a read-only bind mount, needs CAP_SYS_ADMIN and a mount namespace.
//
// # Network
// Without network, a process can make only unix sockets, and can not connect them: a server
// behind one might be a way out. io_uring, which could do both past the filter, and the system
// calls of other architectures fail. Pairs of sockets and pipes work.
//
// # What is not restricted
// Landlock has no rights for a file's mode, owner, times and extended attributes, and none for
// stat and chdir: a confined process can change the former of files that its user owns, and
// find out whether a path exists. /dev/null, /dev/zero, /dev/full, /dev/random, /dev/urandom
// and /dev/tty are readable and writable unless they are denied.
package confine
