//go:build !linux

package hostd

import (
	"errors"
	"os"
)

// room is for Linux.
func room(string) disk { return disk{} }

// nameless is for Linux.
func nameless(string) (*os.File, error) { return nil, errors.ErrUnsupported }
