// Package oom finds out which processes of a sandbox the kernel killed because its memory ran
// out, and makes the kernel choose them before the shim.
package oom
