package shim

import (
	"time"

	"github.com/millrace/millrace/events/process"
)

// rehearsal is the timeout of the shell that Config.Rehearse runs.
const rehearsal = 10 * time.Second

// rehearse runs the most common command the way the shim starts any process. The first one
// pays for reading the shell's files, for the shim's own memory and, in a VM, for the
// kernel's.
func (s *Shim) rehearse() {
	spec := process.Spec{Cmd: "/bin/bash", Args: []string{"-c", "exec true"}, Timeout: rehearsal}
	s.mu.Lock()
	s.spawning++
	s.mu.Unlock()
	p := &proc{s: s, abandoned: true}
	if p.spawnInSlot(&spec) == nil { // else the first real command reports the error
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	p.startResolved()
}
