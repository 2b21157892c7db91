//go:build !linux

package shim

// enterForks does nothing: there are no cgroups.
func (s *Shim) enterForks() {}

// processLimit does nothing: the limits of a jail apply to all of it.
type processLimit struct{}

func reserveProcesses() processLimit { return processLimit{} }

func (processLimit) max() uint64 { return 0 }

func (processLimit) lower() {}
func (processLimit) raise() {}
