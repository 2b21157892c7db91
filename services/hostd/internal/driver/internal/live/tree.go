package live

import (
	"time"

	"github.com/millrace/millrace/services/hostd/internal/driver"
	"github.com/millrace/millrace/services/hostd/internal/driver/internal/cgroup"
)

// Descendants are the processes below root.
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

// Running is who runs in a sandbox.
type Running struct {
	PIDs []int
	// CPU is the time that all of them have used, also those that have ended, to the last of
	// it: as long as it is the same, nobody has done anything. 0: nobody counts it so.
	CPU time.Duration
}

// Measure is what the processes of a group use, and who they are; what the group
// does not tell is added up over the process root and those below it, where the time of
// one that has ended counts once its parent knows, and shared memory several times.
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
