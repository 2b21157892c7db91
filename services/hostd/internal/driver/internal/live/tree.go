package live

import (
	"os"
	"strconv"
	"time"

	"github.com/millrace/millrace/services/hostd/internal/driver"
	"github.com/millrace/millrace/services/hostd/internal/driver/internal/cgroup"
)

// Processes are the living processes, each with its parent. Zombies do not count:
// they cannot be killed, and the one that reaps them is dying too.
func Processes() (map[int]int, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, err
	}
	all := make(map[int]int, len(entries))
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		state, parent, err := Parent(pid)
		if err == nil && state != 'Z' && state != 'X' {
			all[pid] = parent
		}
	}
	return all, nil
}

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

// Measure is what the processes of a group use; what the group does not tell
// is added up over the process root and those below it, where the time of one
// that has ended counts once its parent knows, and shared memory several times.
func Measure(group *cgroup.Group, root int) (driver.Stats, error) {
	u := group.Usage()
	s := driver.Stats{CPU: u.CPU, MemoryBytes: u.Memory, Processes: uint32(len(u.PIDs))}
	if u.HasCPU && u.HasMemory && u.HasPIDs {
		return s, nil
	}
	if !u.HasPIDs {
		all, err := Processes()
		if err != nil {
			return s, err
		}
		u.PIDs = append(Descendants(all, root), root)
	}
	s.Processes = uint32(len(u.PIDs))
	for _, pid := range u.PIDs {
		f, err := stat(pid)
		if err != nil {
			continue // it has ended since
		}
		if !u.HasCPU {
			s.CPU += ticks(f[14-firstStat : 18-firstStat])
		}
		if pages, err := strconv.ParseUint(f[24-firstStat], 10, 64); err == nil && !u.HasMemory {
			s.MemoryBytes += pages * uint64(os.Getpagesize())
		}
	}
	return s, nil
}

// ticks adds up times in clock ticks, of which Linux shows a hundred a second
// on every machine.
func ticks(fields []string) time.Duration {
	var sum time.Duration
	for _, f := range fields {
		if n, err := strconv.ParseUint(f, 10, 64); err == nil {
			sum += time.Duration(n) * 10 * time.Millisecond
		}
	}
	return sum
}
