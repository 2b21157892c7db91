//go:build linux && !long

package files

const races = 5_000 // a million with -tags long
