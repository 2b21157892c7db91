//go:build freebsd || darwin

package bsd

import "time"

// Process is a process at the moment of the look.
type Process struct {
	PID, Parent int
	Start       uint64 // microseconds since 1970; tells it from a later one with its pid
	Zombie      bool
	CPU         time.Duration // macOS does not tell
	Memory      uint64        // bytes; macOS does not tell
}

// zombie is SZOMB of sys/proc.h, the same on both systems.
const zombie = 5

// Descendants are the pids of all that descend from root and are no zombies.
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
