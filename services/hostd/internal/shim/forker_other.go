//go:build !linux

package shim

// enterForks does nothing: there are no cgroups.
func (s *Shim) enterForks() {}

// processLimit does nothing: a jail's bounds are those of the jail.
type processLimit struct{}

func reserve() processLimit { return processLimit{} }

func (processLimit) most() uint64 { return 0 }

func (processLimit) lower() {}
func (processLimit) raise() {}
