//go:build !linux

package cgroup

import (
	"errors"
	"syscall"
)

func spawnIn(*syscall.SysProcAttr, string) (func(), error) { return nil, errors.ErrUnsupported }
