package e2e_test

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/e2e/rig"
)

// raised lists the kernel limits below /proc/sys that --tune-host raises.
var raised = [...]string{"kernel/pid_max", "kernel/threads-max", "kernel/pty/max", "fs/file-max", "net/core/bpf_jit_limit"}

// `up` changes no settings of the machine, also as root and with interfaces for sandboxes.
func TestUpChangesNoHostSettings(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("requires root")
	}
	for _, name := range raised {
		lower(t, name)
	}
	before := machine(t)
	ours := priority(t, os.Getpid())
	opt := rig.Options{}
	if _, err := exec.LookPath("nft"); err == nil {
		opt = rig.Options{Driver: "namespace", Args: []string{"--egress", "internet", "--network", "veth"}}
	}
	u := rig.NewUp(t, opt)
	if got := priority(t, u.PID()); got != ours {
		t.Errorf("up runs with %s, want %s as the program that started it", got, ours)
	}
	box := u.Create(t)
	// The kernel still ends sandboxes before the services.
	if out := rig.Output(u.Commands(t, box.ID, "nice; cat /proc/self/oom_score_adj").All(t), "stdout"); out != "0\n300\n" {
		t.Errorf("in a sandbox, nice and oom_score_adj are %q, want 0 and 300", out)
	}
	during := machine(t)
	for _, name := range []string{"net/ipv4/ip_forward", "nft"} { // while a sandbox has an interface
		during[name] = before[name]
	}
	same(t, "while it runs", during, before)
	if err := syscall.Kill(u.PID(), syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	<-u.Done()
	same(t, "after it", machine(t), before)
	left, err := filepath.Glob("/sys/fs/cgroup/*/*" + box.ID + "*")
	if err != nil || len(left) > 0 {
		t.Errorf("after it, cgroups %v are left (%v)", left, err)
	}
}

// With --tune-host, `up` prints its changes with the old values.
func TestTuneHost(t *testing.T) {
	const free = "nice 0, oom_score_adj 0"
	if os.Geteuid() != 0 || priority(t, os.Getpid()) != free {
		t.Skip("requires root and a default priority")
	}
	was := make(map[string]string)
	for _, name := range raised {
		was[name] = lower(t, name)
	}
	u := rig.NewUp(t, rig.Options{Args: []string{"--tune-host"}})
	want, lines := "nice -10, oom_score_adj -500", []string{"nice: 0 -> -10", "oom_score_adj: 0 -> -500"}
	if !mayOutlive() {
		want, lines[1] = "nice -10, oom_score_adj 0", "oom_score_adj stays 0: permission denied"
	}
	if got := priority(t, u.PID()); got != want {
		t.Errorf("up runs with %s, want %s", got, want)
	}
	box := u.Create(t)
	if out := rig.Output(u.Commands(t, box.ID, "nice; cat /proc/self/oom_score_adj").All(t), "stdout"); out != "0\n300\n" {
		t.Errorf("in a sandbox, nice and oom_score_adj are %q, want 0 and 300", out)
	}
	printed := u.Log()
	for _, line := range lines {
		if !strings.Contains(printed, "--tune-host: "+line+"\n") {
			t.Errorf("up does not print %q:\n%s", line, printed)
		}
	}
	for _, name := range raised {
		now := setting(t, name)
		line := fmt.Sprintf("--tune-host: %s: %s -> %s\n", strings.ReplaceAll(name, "/", "."), was[name], now)
		if was[name] != "" && (now == was[name] || !strings.Contains(printed, line)) {
			t.Errorf("%s was %s and is %s; up does not print %q:\n%s", name, was[name], now, line, printed)
		}
	}
}

// lower sets a limit slightly below the value of --tune-host, and restores it after the
// test. It returns the limit; empty if the kernel does not have it or does not allow that.
func lower(t *testing.T, name string) string {
	t.Helper()
	was := setting(t, name)
	n, err := strconv.ParseUint(was, 10, 64)
	if err != nil {
		return ""
	}
	wanted := map[string]uint64{"kernel/pid_max": 4 << 20, "kernel/threads-max": 4 << 20, "kernel/pty/max": 1 << 20, "fs/file-max": 1 << 62, "net/core/bpf_jit_limit": 504 << 20}[name]
	less := strconv.FormatUint(min(n, wanted-1), 10)
	path := filepath.Join("/proc/sys", name)
	if err := os.WriteFile(path, []byte(less), 0); err != nil {
		return ""
	}
	t.Cleanup(func() { os.WriteFile(path, []byte(was), 0) })
	return less
}

func setting(t *testing.T, name string) string {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join("/proc/sys", name))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(raw))
}

// priority describes the priority of a process's threads.
func priority(t *testing.T, pid int) string {
	t.Helper()
	const normal = 20 // nice 0, as the system call returns it
	tasks, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
	if err != nil {
		t.Fatal(err)
	}
	found := make(map[int]bool)
	for _, task := range tasks {
		tid, err := strconv.Atoi(task.Name())
		if err != nil {
			t.Fatal(err)
		}
		p, err := unix.Getpriority(unix.PRIO_PROCESS, tid)
		if errors.Is(err, unix.ESRCH) {
			continue // that thread has ended
		}
		if err != nil {
			t.Fatal(err)
		}
		found[normal-p] = true
	}
	score, err := os.ReadFile(fmt.Sprintf("/proc/%d/oom_score_adj", pid))
	if err != nil {
		t.Fatal(err)
	}
	var nices []string
	for _, n := range slices.Sorted(maps.Keys(found)) {
		nices = append(nices, strconv.Itoa(n))
	}
	return fmt.Sprintf("nice %s, oom_score_adj %s", strings.Join(nices, " "), strings.TrimSpace(string(score)))
}

// volatile matches the settings below /proc/sys that change by themselves.
var volatile = [...]string{"fs/dentry-state", "fs/file-nr", "fs/inode", "fs/aio-nr", "fs/quota", "kernel/random/", "kernel/ns_last_pid", "kernel/pty/nr", "kernel/sched_domain",
	"kernel/perf_event_max_sample_rate", "net/netfilter/nf_conntrack_count", "net/ipv4/conf/", "net/ipv6/", "net/ipv4/neigh", "vm/stat_refresh", "kernel/hung_task_detect_count", "kernel/tainted"}

// machine returns the settings of this machine: all of /proc/sys, this session's autogroup,
// the controllers of its cgroups, and network rules.
func machine(t *testing.T) map[string]string {
	t.Helper()
	all := make(map[string]string)
	read := func(name, path string) {
		if raw, err := os.ReadFile(path); err == nil {
			all[name] = strings.TrimSpace(string(raw))
		}
	}
	filepath.WalkDir("/proc/sys", func(path string, d fs.DirEntry, err error) error {
		name := strings.TrimPrefix(path, "/proc/sys/")
		if err == nil && !d.IsDir() && !slices.ContainsFunc(volatile[:], func(v string) bool { return strings.HasPrefix(name, v) }) {
			read(name, path)
		}
		return nil
	})
	read("autogroup", "/proc/self/autogroup")
	filepath.WalkDir("/sys/fs/cgroup", func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() && strings.HasPrefix(d.Name(), "millrace-") {
			return fs.SkipDir // of any host's sandbox
		}
		if err == nil && d.Name() == "cgroup.subtree_control" {
			read(path, path)
		}
		return nil
	})
	if out, err := exec.Command("nft", "list", "ruleset").Output(); err == nil {
		all["nft"] = string(out)
	}
	return all
}

// same compares two states of the machine.
func same(t *testing.T, when string, got, want map[string]string) {
	t.Helper()
	for name := range maps.Keys(want) {
		if got[name] != want[name] {
			t.Errorf("%s, %s is %q, want %q as before", when, name, got[name], want[name])
		}
	}
	for name, is := range got {
		if _, ok := want[name]; !ok {
			t.Errorf("%s, %s is %q, and did not exist before", when, name, is)
		}
	}
}

// mayOutlive reports whether this process and its children may lower their OOM score.
func mayOutlive() bool {
	const path, lower, none = "/proc/self/oom_score_adj", "-1", "0"
	if os.WriteFile(path, []byte(lower), 0) != nil {
		return false
	}
	return os.WriteFile(path, []byte(none), 0) == nil
}
