//go:build !linux

package hostd

import (
	"errors"
	"os"
)

// diskFree returns nothing: it is implemented for Linux only.
func diskFree(string) disk { return disk{} }

// openUnnamed fails: it is implemented for Linux only.
func openUnnamed(string) (*os.File, error) { return nil, errors.ErrUnsupported }
