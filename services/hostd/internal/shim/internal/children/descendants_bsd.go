//go:build freebsd || darwin

package children

import "github.com/millrace/millrace/services/hostd/internal/procstat"

// hangUp does nothing: the ioctl for the foreground group works here.
func hangUp(int) {}

// descendants returns the pids of all descendants of root except zombies.
func descendants(root int) []int {
	out, err := procstat.Descendants(root)
	if err != nil {
		return nil
	}
	return out
}
