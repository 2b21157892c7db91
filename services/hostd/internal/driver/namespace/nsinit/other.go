//go:build !linux

package nsinit

import "errors"

// Init is supported only on Linux.
func Init([]string) error { return errors.ErrUnsupported }
