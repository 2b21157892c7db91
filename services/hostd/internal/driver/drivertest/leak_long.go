//go:build linux && long

package drivertest

const (
	creates = 10_000
	moments = 100
)
