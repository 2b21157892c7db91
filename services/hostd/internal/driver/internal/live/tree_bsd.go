//go:build freebsd || darwin

package live

import (
	"time"

	"github.com/millrace/millrace/services/hostd/internal/bsd"
)

// Processes are the living processes, each with its parent.
func Processes() (map[int]int, error) {
	list, err := bsd.Processes()
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

// used would be what a process uses; here it is not told.
func used(int) (time.Duration, uint64) { return 0, 0 }
