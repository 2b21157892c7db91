package direct

import (
	"os"
	"strconv"
)

// environOf is the environment that a process was started with; nothing where it
// may not be read.
func environOf(pid int) []byte {
	env, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/environ")
	if err != nil {
		return nil
	}
	return env
}
