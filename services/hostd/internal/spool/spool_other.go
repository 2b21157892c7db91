//go:build !linux

package spool

import (
	"errors"
	"os"
)

// openUnnamed fails: it is implemented for Linux only.
func openUnnamed(string) (*os.File, error) { return nil, errors.ErrUnsupported }
