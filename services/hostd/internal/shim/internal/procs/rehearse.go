package procs

import (
	"time"

	"github.com/millrace/millrace/events/process"
)

// rehearsal is the timeout of the shell that Rehearse runs.
const rehearsal = 10 * time.Second

// Rehearse runs the most common command the way the shim starts any process. The first one
// pays for reading the shell's files, for the shim's own memory and, in a VM, for the
// kernel's.
func (t *Table) Rehearse() {
	spec := process.Spec{Cmd: "/bin/bash", Args: []string{"-c", "exec true"}, Timeout: rehearsal}
	t.mu.Lock()
	t.spawning++
	t.mu.Unlock()
	p := &proc{t: t, rec: t.cfg.Output.NewDiscarded()}
	if p.spawnInSlot(&spec) == nil { // else the first real command reports the error
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	p.startResolved()
}
