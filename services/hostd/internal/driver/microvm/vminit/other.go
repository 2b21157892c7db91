//go:build !linux

package vminit

import "errors"

// Init is for Linux.
func Init([]string) error { return errors.ErrUnsupported }
