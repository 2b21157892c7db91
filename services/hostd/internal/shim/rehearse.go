package shim

import (
	"time"

	"github.com/millrace/millrace/events/process"
)

// rehearsal bounds how long what Config.Rehearse runs may take.
const rehearsal = 10 * time.Second

// rehearse starts what clients start most, as the shim starts any process: the
// first one pays for the shell's files, for the shim's own memory and, where the
// place has a kernel of its own, for that one's.
func (s *Shim) rehearse() {
	spec := process.Spec{Cmd: "/bin/bash", Args: []string{"-c", "exec true"}, Timeout: rehearsal}
	s.mu.Lock()
	s.spawning++
	s.mu.Unlock()
	p := &proc{s: s, abandoned: true}
	if p.spawnInTurn(&spec) == nil { // else whoever starts something is told what is wrong
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	p.launched()
}
