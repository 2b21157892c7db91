package hosttune

import (
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// prioritize sets the priority of a service for this process. Drivers reset it for
// sandboxes.
func prioritize() []Change {
	return append(renice(), scoreOOM()...)
}

func renice() []Change {
	const normal = 20 // nice 0, as the system call returns it
	if p, err := unix.Getpriority(unix.PRIO_PROCESS, 0); err != nil || p != normal {
		return nil
	}
	threads, err := os.ReadDir("/proc/self/task")
	for _, t := range threads { // later threads inherit it
		tid, terr := strconv.Atoi(t.Name())
		if terr != nil {
			continue
		}
		if err = unix.Setpriority(unix.PRIO_PROCESS, tid, Nice); err != nil {
			break
		}
	}
	return append([]Change{{niceName, "0", strconv.Itoa(Nice), err}}, reniceSession()...)
}

// reniceSession sets the nice value of this process's session. Linux divides the CPU
// between sessions first, so that the nice value of a process counts only within its own.
// The session of a shell belongs to the user and is not changed.
func reniceSession() []Change {
	const path = "/proc/self/autogroup"
	was, err := os.ReadFile(path) // such as "/autogroup-3 nice 0"
	if err != nil {
		return nil // a kernel without autogroups
	}
	_, from, _ := strings.Cut(strings.TrimSpace(string(was)), " nice ")
	if sid, err := unix.Getsid(0); err != nil || sid != os.Getpid() || from != "0" {
		return nil
	}
	err = os.WriteFile(path, []byte(strconv.Itoa(Nice)), 0)
	return []Change{{autogroupName, from, strconv.Itoa(Nice), reason(err)}}
}

func scoreOOM() []Change {
	const path = "/proc/self/oom_score_adj"
	was, err := os.ReadFile(path)
	if from := strings.TrimSpace(string(was)); err != nil || from != "0" {
		return nil
	}
	err = os.WriteFile(path, []byte(strconv.Itoa(OOMScore)), 0)
	return []Change{{oomName, "0", strconv.Itoa(OOMScore), reason(err)}}
}

// service returns the settings of a service's process.
func service(pid int) []Setting {
	if pid <= 0 {
		return nil
	}
	const normal = 20 // nice 0, as the system call returns it
	p, err := unix.Getpriority(unix.PRIO_PROCESS, pid)
	score, serr := os.ReadFile(fmt.Sprintf("/proc/%d/oom_score_adj", pid))
	if err != nil || serr != nil {
		return nil // the process has ended
	}
	nice, adj := normal-p, strings.TrimSpace(string(score))
	n, err := strconv.Atoi(adj)
	return []Setting{
		{Name: niceName, Now: strconv.Itoa(nice), Want: strconv.Itoa(Nice), Why: "the services run before the sandboxes", OK: nice <= Nice},
		{Name: oomName, Now: adj, Want: strconv.Itoa(OOMScore), Why: "the kernel ends sandboxes before the services", OK: err == nil && n <= OOMScore},
	}
}
