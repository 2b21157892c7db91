//go:build freebsd || darwin

package shim

import "github.com/millrace/millrace/services/hostd/internal/bsd"

// hangUp is not needed: a terminal tells its foreground here.
func hangUp(int) {}

// descendants are the pids of all that descend from root and are no zombies.
func descendants(root int) []int {
	out, err := bsd.Descendants(root)
	if err != nil {
		return nil
	}
	return out
}
