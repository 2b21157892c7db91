//go:build !linux || !(amd64 || arm64)

package spawn

import (
	"errors"
	"syscall"
	"time"
)

// Spawner starts programs.
type Spawner struct {
	Processes uint64 // ignored
}

// New returns a Spawner.
func New() *Spawner { return &Spawner{} }

// Child is a child that has executed a program.
type Child struct{ PID int }

// Start is syscall.ForkExec; it supports no restrictions.
func (s *Spawner) Start(path string, argv []string, attr *syscall.ProcAttr, restrict *Restrictions) (*Child, error) {
	if restrict != nil {
		return nil, errors.ErrUnsupported
	}
	pid, err := syscall.ForkExec(path, argv, attr)
	if err != nil {
		return nil, err
	}
	return &Child{PID: pid}, nil
}

// Wait does nothing: Start has waited.
func (c *Child) Wait(time.Duration) error { return nil }

// Abort does nothing: Start has waited.
func (c *Child) Abort() error { return nil }
