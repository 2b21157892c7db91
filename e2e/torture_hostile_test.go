package e2e_test

import (
	"fmt"
	"net/http"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/e2e/rig"
)

// outputAndCode runs a command and returns its output on both streams, and its exit code.
func outputAndCode(t *testing.T, a *rig.API, box, cmd string) (string, int) {
	t.Helper()
	lines := a.Commands(t, box, cmd).All(t)
	end := rig.End(t, lines)
	if end.ExitCode == nil {
		return strings.TrimSpace(outputOf(lines)), -1
	}
	return strings.TrimSpace(outputOf(lines)), *end.ExitCode
}

// hostSeesProcesses reports whether the host sees a sandbox's processes and limits their open files: with
// a kernel of its own it does not.
func hostSeesProcesses(t *testing.T) bool { return rig.Driver(t) == "namespace" }

// undisturbed fails if a sandbox does not work as usual.
func undisturbed(t *testing.T, a *rig.API, box, beside string) {
	t.Helper()
	if got, code := outputAndCode(t, a, box, "echo alive > ~/f && cat ~/f && (sleep 0.01 & wait)"); got != "alive" || code != 0 {
		t.Errorf("beside %s: %d %q", beside, code, got)
	}
}

// TestProcessBombIsBounded covers E83: a fork bomb ends at its limit, and with its sandbox.
func TestProcessBombIsBounded(t *testing.T) {
	onlySandboxed(t)
	a := api(t)
	const most = 64
	box, beside := a.Create(t, "pids", most), a.Create(t).ID
	word := fmt.Sprintf("bomb-%d-%d", os.Getpid(), time.Now().UnixNano())
	a.Commands(t, box.ID, "bash -c 'f() { f \"$1\" | f \"$1\" & }; f \"$1\"; sleep 1000' sh "+word+" >/dev/null 2>&1 & sleep 0.1").All(t)
	if hostSeesProcesses(t) && !rig.Poll(20*time.Second, func() bool { return len(cmdlines(word)) > 0 }) {
		t.Fatal("the bomb did not start")
	}
	for range 5 {
		if n := len(cmdlines(word)); n > most {
			t.Errorf("%d processes, want %d at most", n, most)
		}
		undisturbed(t, a, beside, "a fork bomb")
	}
	a.Kill(t, box.ID)
	if !rig.Poll(10*time.Second, func() bool { return len(cmdlines(word)) == 0 }) {
		t.Errorf("%d processes outlived their sandbox", len(cmdlines(word)))
	}
}

// TestDiskLimitIsEnforced covers E85: commands and uploads can write up to the disk limit, and
// the sandbox works again after files are removed.
func TestDiskLimitIsEnforced(t *testing.T) {
	onlySandboxed(t)
	t.Parallel()
	a := api(t)
	const most = 16 << 20
	box, beside := a.Create(t, "diskSizeMB", 16).ID, a.Create(t).ID
	got, _ := outputAndCode(t, a, box, "exec 2>/dev/null; head -c 40m /dev/zero > ~/big; stat -c %s ~/big")
	if n, err := strconv.Atoi(got); err != nil || n > most {
		t.Errorf("one file has %q bytes, want %d at most", got, most)
	}
	undisturbed(t, a, beside, "a full disk")
	limited, _ := outputAndCode(t, a, box, "df -B1 --output=size ~ | tail -1")
	if n, err := strconv.Atoi(limited); err != nil || n > most || !hostSeesProcesses(t) {
		t.Skipf("the total size of files is not limited here: %q", limited)
	}
	ans := a.Do(t, http.MethodPost, filesPath("/home/user/more"), make([]byte, 1<<20), "Content-Type", octets, "E2b-Sandbox-Id", box)
	if ans.Status != http.StatusInsufficientStorage {
		t.Errorf("an upload to a full disk: %v", ans)
	}
	got, _ = outputAndCode(t, a, box, `rm ~/big; mkdir ~/many; i=0; while [ $i -lt 30000 ] && true 2>/dev/null > ~/many/$i; do i=$((i+1)); done 2>/dev/null; echo $i`)
	if n, err := strconv.Atoi(got); err != nil || n >= 30000 {
		t.Errorf("%s files", got)
	}
	if got, code := outputAndCode(t, a, box, "rm -r ~/many && echo again > ~/x && cat ~/x"); got != "again" || code != 0 {
		t.Errorf("after a file was removed: %d %q", code, got)
	}
}

// TestDescriptorLimitIsEnforced covers E86: only the process that opens too many descriptors
// reaches the limit.
func TestDescriptorLimitIsEnforced(t *testing.T) {
	onlySandboxed(t)
	t.Parallel()
	a := api(t)
	box, beside := a.Create(t).ID, a.Create(t).ID
	waste := a.Commands(t, box, `n=0; while exec {fd}</dev/null; do n=$((n+1)); done 2>/dev/null; echo $n; read -t 3 < <(sleep 3)`)
	first := waste.Must(t)
	for first.Data == nil {
		first = waste.Must(t)
	}
	if n, err := strconv.Atoi(strings.TrimSpace(*first.Data)); err != nil || n < 200 || n > 1<<16 {
		t.Errorf("%q descriptors", *first.Data)
	}
	undisturbed(t, a, box, "a process without descriptors")
	undisturbed(t, a, beside, "a process without descriptors")
	waste.All(t)
}

// TestOutputFloodDoesNotDelayOthers covers E88: a flood on both streams does not delay other
// sandboxes.
func TestOutputFloodDoesNotDelayOthers(t *testing.T) {
	a := api(t)
	box, beside := a.Create(t), a.Create(t).ID
	flood := a.Commands(t, box.ID, "yes >&2 & yes")
	flood.Must(t)
	for range 10 {
		undisturbed(t, a, beside, "a flood")
	}
	undisturbed(t, a, box.ID, "a flood in the same sandbox")
	flood.Close()
	a.Kill(t, box.ID)
}

// TestManyProcessesLeaveNoZombies covers E89 and T-77: thousands of processes, including
// orphans, leave no zombies.
func TestManyProcessesLeaveNoZombies(t *testing.T) {
	t.Parallel()
	a := api(t)
	box := a.Create(t).ID
	// On a busy machine a deprioritized sandbox gets little CPU: it has a minute.
	lines := a.Commands(t, box, `i=0; while [ $i -lt 2000 ] && [ $SECONDS -lt 60 ]; do (true & ) ; /bin/true & i=$((i+1)); [ $((i % 50)) != 0 ] || wait; done; wait; echo $i`, "timeout_ms", 0).All(t)
	end := rig.End(t, lines)
	if n, err := strconv.Atoi(strings.TrimSpace(outputOf(lines))); err != nil || n < 200 || end.ExitCode == nil || *end.ExitCode != 0 {
		t.Errorf("%d, %v, %s", n, err, end.Raw)
	}
	if got, _ := outputAndCode(t, a, box, `sleep 0.2; cat /proc/[0-9]*/stat 2>/dev/null | grep -c ') Z '`); got != "0" && rig.Driver(t) != "direct" {
		t.Errorf("%s zombies", got)
	}
}

// TestSpecialAndSparseFiles covers E93: devices and pipes are neither read nor written as
// files, and a sparse file of a terabyte takes no space.
func TestSpecialAndSparseFiles(t *testing.T) {
	onlySandboxed(t)
	t.Parallel()
	a := api(t)
	box := a.Create(t).ID
	if got, code := outputAndCode(t, a, box, "cd ~ && mkfifo fifo && truncate -s 1T sparse && echo own > own && ln own linked && ln -s /dev/zero zero && "+
		`perl -MIO::Socket::UNIX -e 'IO::Socket::UNIX->new(Local => "socket", Listen => 1) or die' || true`); code != 0 {
		t.Fatalf("%d %q", code, got)
	}
	in := []string{"E2b-Sandbox-Id", box}
	for _, p := range []string{"fifo", "socket", "zero", "/dev/zero", "/dev/null", "/dev/full", "/dev/tty", "/dev/ptmx", "/proc/self/fd/0", "/proc/1/fd/3", "/proc/1/mem", "/proc/kcore", "/dev/fd/3"} {
		for method, body := range map[string]any{http.MethodGet: nil, http.MethodPost: []byte("ours")} {
			ans := a.Do(t, method, filesPath(p), body, append([]string{"Content-Type", octets}, in...)...)
			if ans.Status < 400 || ans.Status == http.StatusInternalServerError {
				t.Errorf("%s %s: %.200v", method, p, ans)
			}
		}
	}
	if ans := a.Do(t, http.MethodPost, filesPath("linked"), []byte("new"), append([]string{"Content-Type", octets}, in...)...); ans.Status != 200 {
		t.Errorf("onto a hard link: %v", ans)
	}
	if got, _ := outputAndCode(t, a, box, "cat ~/own ~/linked"); got != "newnew" { // as in E2B, an upload changes all hard links of the file
		t.Errorf("hard links: %q", got)
	}
	ans := a.Do(t, http.MethodGet, filesPath("sparse"), nil, append([]string{"Range", "bytes=1099511627770-"}, in...)...)
	if ans.Status != http.StatusPartialContent || string(ans.Body) != strings.Repeat("\x00", 6) {
		t.Errorf("the end of a terabyte: %.100v", ans)
	}
	var snap struct{ SnapshotID string }
	a.Want(t, http.StatusCreated, http.MethodPost, "/sandboxes/"+box+"/snapshots", nil).Decode(t, &snap)
	if snap.SnapshotID == "" {
		t.Fatal("no snapshot")
	}
	t.Cleanup(func() { a.Do(t, http.MethodDelete, "/templates/"+snap.SnapshotID, nil) })
	fork := a.Create(t, "templateID", snap.SnapshotID).ID
	blocks := "0" // gVisor reports all blocks of a sparse file
	if hostSeesProcesses(t) {
		blocks = "$(stat -c %b ~/sparse)"
	}
	if got, code := outputAndCode(t, a, fork, "stat -c '%s' ~/sparse; [ "+blocks+" -lt 1000 ] && echo still sparse"); got != "1099511627776\nstill sparse" || code != 0 {
		t.Errorf("in a sandbox from a snapshot: %d %q", code, got)
	}
}

// TestProcessesSeeNothingOfTheHost covers E99 and T-100: no process finds anything of its host
// in environments, arguments, mounts or descriptors, on pipes or on a terminal.
func TestProcessesSeeNothingOfTheHost(t *testing.T) {
	onlySandboxed(t)
	t.Setenv("MILLRACE_CANARY", "canary-of-the-host")
	u := rig.NewUp(t, rig.Options{Env: []string{"MILLRACE_CANARY=canary-of-the-host", "MILLRACE_NATS_TOKEN=canary-of-the-host"}})
	box := u.Create(t).ID
	users := []string{"user"}
	if rootInside(t) {
		users = append(users, "root")
	}
	for _, user := range users {
		for _, pty := range []bool{false, true} {
			spec := map[string]any{"process": map[string]any{"cmd": "/bin/bash", "args": []string{"-c",
				"env; cat /proc/[0-9]*/environ /proc/[0-9]*/cmdline /proc/cmdline /proc/self/mountinfo 2>/dev/null | tr '\\0' '\\n'; echo; for f in /proc/self/fd/*; do echo fd=${f##*/}; done; echo over"}}}
			if pty {
				spec["pty"] = map[string]any{"size": map[string]int{"cols": 200, "rows": 50}}
			}
			run := u.StartSpec(t, box, spec, "Authorization", basic(user)).All(t)
			out := run.Stdout() + string(run.Out["pty"])
			if !strings.Contains(out, "over") {
				t.Errorf("as %s: %q, %+v", user, out, run.End)
			}
			for _, secret := range []string{"canary-of-the-host", u.Key, u.Data} {
				if strings.Contains(out, secret) {
					t.Errorf("as %s finds %q in %q", user, secret, out)
				}
			}
			for _, line := range strings.Fields(out) {
				// The shell opens descriptor 255 on a terminal or for a script.
				fd, ok := strings.CutPrefix(line, "fd=")
				if n, err := strconv.Atoi(fd); ok && err == nil && n > 3 && n != 255 {
					t.Errorf("as %s: descriptor %d is open", user, n)
				}
			}
		}
	}
}
