//go:build freebsd || darwin

package procstat

import "time"

// Process is a snapshot of a process.
type Process struct {
	PID, Parent int
	Start       uint64 // microseconds since 1970; distinguishes processes with the same pid
	Zombie      bool
	CPU         time.Duration // zero on macOS
	Memory      uint64        // bytes; zero on macOS
}

// zombie is SZOMB of sys/proc.h, the same on both systems.
const zombie = 5

// Descendants returns the pids of all descendants of root except zombies.
func Descendants(root int) ([]int, error) {
	all, err := Processes()
	if err != nil {
		return nil, err
	}
	children := make(map[int][]Process)
	for _, p := range all {
		children[p.Parent] = append(children[p.Parent], p)
	}
	var out []int
	for next := children[root]; len(next) > 0; {
		p := next[len(next)-1]
		next = append(next[:len(next)-1], children[p.PID]...)
		if !p.Zombie {
			out = append(out, p.PID)
		}
	}
	return out, nil
}
