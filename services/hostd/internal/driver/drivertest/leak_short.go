//go:build linux && !long

package drivertest

const creates = 200 // with -tags long they are 10,000
