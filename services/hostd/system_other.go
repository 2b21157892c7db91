//go:build !linux

package hostd

import (
	"errors"
	"os"
)

// disk is for Linux.
func disk(string) uint64 { return 0 }

// nameless is for Linux.
func nameless(string) (*os.File, error) { return nil, errors.ErrUnsupported }
