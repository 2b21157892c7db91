//go:build !linux

package vminit

import "errors"

// Init is supported only on Linux.
func Init([]string) error { return errors.ErrUnsupported }

// Pack is supported only on Linux.
func Pack([]string) int { return 1 }

// Aside is supported only on Linux.
func Aside(string, uintptr) (func([]byte) error, error) { return nil, errors.ErrUnsupported }
