//go:build !linux

package hostd

import (
	"errors"
	"os"
)

// nameless is for Linux.
func nameless(string) (*os.File, error) { return nil, errors.ErrUnsupported }
