//go:build !linux

package vminit

import "errors"

// Init is for Linux.
func Init([]string) error { return errors.ErrUnsupported }

// Pack is for Linux.
func Pack([]string) int { return 1 }

// Aside is for Linux.
func Aside(string, uintptr) (func([]byte) error, error) { return nil, errors.ErrUnsupported }
