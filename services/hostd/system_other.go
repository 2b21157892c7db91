//go:build !linux

package hostd

import (
	"errors"
	"os"
)

// diskFree returns nothing: it is implemented for Linux only.
func room(string) disk { return disk{} }

// nameless fails: it is implemented for Linux only.
func nameless(string) (*os.File, error) { return nil, errors.ErrUnsupported }
