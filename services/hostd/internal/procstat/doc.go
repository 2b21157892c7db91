// Package procstat reads the processes of a system without /proc: FreeBSD and macOS, by sysctl.
// On Linux it is empty. It compiles for both and has been run on neither.
package procstat
