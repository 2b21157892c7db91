//go:build !linux

package cgroup

import (
	"errors"
	"syscall"
)

func born(*syscall.SysProcAttr, string) (func(), error) { return nil, errors.ErrUnsupported }
