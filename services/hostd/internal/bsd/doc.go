// Package bsd tells of the processes of a machine that has no /proc: FreeBSD and
// macOS, by sysctl. On Linux it is empty. It is built for both and was run on
// neither.
package bsd
