package cli

import (
	"fmt"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// parseSignal reads KILL, SIGKILL, kill or 9. Numbers are Linux's.
func parseSignal(s string) (int, error) {
	if n, err := strconv.Atoi(s); err == nil {
		if n < 1 || n > 64 {
			return 0, fmt.Errorf("no signal %d", n)
		}
		return n, nil
	}
	name := strings.ToUpper(s)
	if !strings.HasPrefix(name, "SIG") {
		name = "SIG" + name
	}
	if n := unix.SignalNum(name); n != 0 {
		return int(n), nil
	}
	return 0, fmt.Errorf("no signal %q", s)
}
