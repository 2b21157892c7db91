//go:build linux && !long

package drivertest

const (
	creates = 100 // 10,000 with -tags long
	moments = 20  // 100 with -tags long
)
