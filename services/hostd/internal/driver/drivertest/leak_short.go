//go:build linux && !long

package drivertest

const (
	creates = 100 // with -tags long they are 10,000
	moments = 20  // 100
)
