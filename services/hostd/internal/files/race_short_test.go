//go:build linux && !long

package files

const races = 5_000 // with -tags long they are a million
