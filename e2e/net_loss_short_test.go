//go:build !long

package e2e_test

const requests = 2_000 // with -tags long they are 100,000
