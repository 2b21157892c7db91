//go:build !linux

package hostd

import (
	"errors"
	"os"
)

// room is for Linux.
func room(string) (free, total uint64) { return 0, 0 }

// nameless is for Linux.
func nameless(string) (*os.File, error) { return nil, errors.ErrUnsupported }
