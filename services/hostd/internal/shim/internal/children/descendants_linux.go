package children

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
)

// descendants returns the pids of all descendants of root except zombies.
func descendants(root int) []int {
	children := make(map[int][]int)
	dead := make(map[int]bool)
	for pid, p := range processes() {
		if p.parent > 0 {
			children[p.parent] = append(children[p.parent], pid)
			dead[pid] = p.state == "X" || p.state == "Z" && !leaderGone(strconv.Itoa(pid))
		}
	}
	var out []int
	for next := children[root]; len(next) > 0; {
		pid := next[len(next)-1]
		next = append(next[:len(next)-1], children[pid]...)
		if !dead[pid] {
			out = append(out, pid)
		}
	}
	return out
}

// leaderGone reports whether a process that looks like a zombie only lost its first thread
// and still runs.
func leaderGone(pid string) bool {
	threads, err := os.ReadDir("/proc/" + pid + "/task")
	return err == nil && len(threads) > 1
}

// hangUp sends to all groups of a session but its leader's what the end of its terminal
// sends to the foreground group. Processes that do not ignore SIGHUP end.
func hangUp(session int) {
	seen := map[int]bool{session: true}
	for _, p := range processes() {
		if p.session != session || p.group <= 1 || seen[p.group] {
			continue
		}
		seen[p.group] = true
		syscall.Kill(-p.group, syscall.SIGHUP)
		syscall.Kill(-p.group, syscall.SIGCONT)
	}
}

// procStat is a process's state, parent, group and session.
type procStat struct {
	state                  string
	parent, group, session int
}

// processes returns all current processes by pid.
func processes() map[int]procStat {
	dir, err := os.Open("/proc")
	if err != nil {
		return nil
	}
	defer dir.Close()
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return nil
	}
	all := make(map[int]procStat)
	for _, name := range names {
		pid, err := strconv.Atoi(name)
		if err != nil {
			continue
		}
		if p, ok := readProcStat(name); ok {
			all[pid] = p
		}
	}
	return all
}

// readProcStat reads /proc/pid/stat; ok is false if the process is gone.
func readProcStat(pid string) (p procStat, ok bool) {
	b, err := os.ReadFile("/proc/" + pid + "/stat")
	if err != nil {
		return p, false
	}
	stat := string(b) // pid (name) state ppid pgrp session ...; the name may hold anything
	_, err = fmt.Sscan(stat[strings.LastIndexByte(stat, ')')+1:], &p.state, &p.parent, &p.group, &p.session)
	return p, err == nil
}
