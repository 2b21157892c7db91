//go:build !linux

package shim_test

import (
	"os"
	"testing"
)

func runTests(m *testing.M) { os.Exit(m.Run()) }
