//go:build unix

package deictic

import "syscall"

// nonblock keeps an open of a pipe from blocking.
const nonblock = syscall.O_NONBLOCK
