//go:build freebsd || darwin

package live

import (
	"time"

	"github.com/millrace/millrace/services/hostd/internal/procstat"
)

// Processes returns the running processes, each with its parent.
func Processes() (map[int]int, error) {
	list, err := procstat.Processes()
	if err != nil {
		return nil, err
	}
	all := make(map[int]int, len(list))
	for _, p := range list {
		if !p.Zombie {
			all[p.PID] = p.Parent
		}
	}
	return all, nil
}

// used returns the CPU time and memory of a process; zero if it has ended.
func used(pid int) (cpu time.Duration, memory uint64) {
	p, err := procstat.Find(pid)
	if err != nil {
		return 0, 0
	}
	return p.CPU, p.Memory
}
