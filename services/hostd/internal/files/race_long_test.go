//go:build linux && long

package files

const races = 1_000_000
