package live

import (
	"time"

	"github.com/millrace/millrace/services/hostd/internal/driver"
	"github.com/millrace/millrace/services/hostd/internal/driver/internal/cgroup"
)

// Descendants returns the processes below root.
func Descendants(all map[int]int, root int) []int {
	children := map[int][]int{}
	for pid, parent := range all {
		children[parent] = append(children[parent], pid)
	}
	var found []int
	for queue := []int{root}; len(queue) > 0; queue = queue[1:] {
		found = append(found, children[queue[0]]...)
		queue = append(queue, children[queue[0]]...)
	}
	return found
}

// Running describes the processes in a sandbox.
type Running struct {
	PIDs []int
	// CPU is the exact time that all of them have used, ended ones included: as long as
	// it is the same, no process has run. 0: not counted.
	CPU time.Duration
}

// Measure returns the usage of the processes of a group, and the processes. What the
// group does not report is added up over the process root and its descendants, where the
// time of an ended process counts once its parent reaps it, and shared memory several times.
func Measure(group *cgroup.Group, root int) (driver.Stats, Running, error) {
	u := group.Usage()
	s := driver.Stats{CPU: u.CPU, MemoryBytes: u.Memory, Processes: uint32(len(u.PIDs)), OOMKills: u.OOMKills}
	if u.HasCPU && u.HasMemory && u.HasPIDs {
		return s, Running{u.PIDs, u.CPU}, nil
	}
	if !u.HasPIDs {
		all, err := Processes()
		if err != nil {
			return s, Running{}, err
		}
		u.PIDs = append(Descendants(all, root), root)
	}
	s.Processes = uint32(len(u.PIDs))
	for _, pid := range u.PIDs {
		cpu, memory := used(pid)
		if !u.HasCPU {
			s.CPU += cpu
		}
		if !u.HasMemory {
			s.MemoryBytes += memory
		}
	}
	return s, Running{u.PIDs, u.CPU}, nil
}
