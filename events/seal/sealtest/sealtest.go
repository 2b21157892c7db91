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

// Seal seals a text for a place.
func Seal(t testing.TB, r *seal.Ring, at seal.Place, text string) seal.Text {
	t.Helper()
	sealed, err := r.Seal(at, text)
	if err != nil {
		t.Fatal(err)
	}
	return sealed
}
