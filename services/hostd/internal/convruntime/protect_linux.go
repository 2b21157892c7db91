package convruntime

import "golang.org/x/sys/unix"

// inMemory reports whether a path is in a file system in memory.
func inMemory(path string) bool {
	var fs unix.Statfs_t
	return unix.Statfs(path, &fs) == nil && fs.Type == unix.TMPFS_MAGIC
}

// protect keeps the values of secrets out of core dumps, and out of the reach of processes of the
// same user that trace others. What the kernel does not support is left out.
func protect() {
	var core unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_CORE, &core) == nil {
		core.Cur = 0
		unix.Setrlimit(unix.RLIMIT_CORE, &core) //nolint:errcheck // a lower soft limit is allowed
	}
	unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0) //nolint:errcheck // see above
}

// stackLimit is a soft limit of the stack with which the kernel accepts the largest environments
// that it ever does: a quarter of the stack, and at most 6 MiB.
const stackLimit = 24 << 20

// allowLargeEnvironments makes the kernel accept them for commands, which inherit the limit of their
// stack: the threads of a C library get as much.
func allowLargeEnvironments() {
	var stack unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_STACK, &stack) == nil && stack.Cur < stackLimit {
		stack.Cur = min(stackLimit, stack.Max)
		unix.Setrlimit(unix.RLIMIT_STACK, &stack) //nolint:errcheck // up to the hard limit
	}
}
