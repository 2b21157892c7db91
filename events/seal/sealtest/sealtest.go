// Package sealtest provides keys for tests that need no store.
package sealtest

import (
	"testing"

	"github.com/millrace/millrace/events/seal"
)

// Ring returns a ring with a key of its own.
func Ring(t testing.TB) *seal.Ring {
	t.Helper()
	m, err := seal.ParseMaster(seal.NewMaster())
	if err != nil {
		t.Fatal(err)
	}
	r, err := seal.NewSet(m).Ring(m)
	if err != nil {
		t.Fatal(err)
	}
	return r
}
