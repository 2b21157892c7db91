//go:build !linux

package nsinit

import "errors"

// Init is for Linux.
func Init([]string) error { return errors.ErrUnsupported }
