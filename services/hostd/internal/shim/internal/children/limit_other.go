//go:build !linux

package children

// enterForks does nothing: there are no cgroups.
func enterForks(int) {}

// processLimit does nothing: the limits of a jail apply to all of it.
type processLimit struct{}

func reserveProcesses() processLimit { return processLimit{} }

func (processLimit) max() uint64 { return 0 }

func (processLimit) lower() {}
func (processLimit) raise() {}
