//go:build long

package e2e_test

const requests = 100_000
