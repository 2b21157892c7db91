package shim_test

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/process"
	"github.com/millrace/millrace/services/hostd/internal/driver/drivertest"
	"github.com/millrace/millrace/services/hostd/internal/wire"
)

// runTests makes the test binary also the programs that drivertest starts.
func runTests(m *testing.M) { drivertest.Main(m) }

// reusePID is a shell script that gives the pid $N to a new process group running $GROUP.
// The kernel assigns the pid after the last one, which can be set. A thread of the shim may
// take it first, so the script tries until it succeeds.
const reusePID = `set -m; for try in $(seq 200); do
	echo $((N-1)) > /proc/sys/kernel/ns_last_pid || exit 3
	sh -c "$GROUP" & [ $! = $N ] && break; kill -9 $!; wait $!
done 2>/dev/null; [ $! = $N ] || exit 4; `

// connectedInside is connected with the shim as pid 1 of a pid namespace, in which pids can
// be chosen.
func connectedInside(t *testing.T) *host {
	t.Helper()
	attr := &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID}
	if os.Geteuid() != 0 {
		attr.Cloneflags |= syscall.CLONE_NEWUSER
		attr.UidMappings = []syscall.SysProcIDMap{{HostID: os.Getuid(), Size: 1}}
		attr.GidMappings = []syscall.SysProcIDMap{{HostID: os.Getgid(), Size: 1}}
	}
	socket, _ := startShimAs(t, func(cmd *exec.Cmd) { cmd.SysProcAttr = attr })
	h := newHost(t, socket)
	h.connect()
	can := h.awaitEnd(h.start(sh("echo 1000 > /proc/sys/kernel/ns_last_pid")))
	if describe(can.end) != "exited 0" {
		t.Skipf("pids cannot be chosen here: %s", describe(can.end))
	}
	return h
}

// TestSignalNeverHitsAReusedPID: a process has ended, though its pipe is still open, and
// its pid was reused. A signal to it returns that it has ended, and hits no process.
func TestSignalNeverHitsAReusedPID(t *testing.T) {
	// The script prints "lives" on SIGTERM, and nothing if it was killed before.
	const newcomer = `trap "echo lives; exit" TERM; echo $$ > $F.new; mv $F.new $F; sleep 1000 & wait`
	for _, tt := range []struct{ name, group, settled string }{
		{"a job of a shell", newcomer, "true"},
		{"a group whose leader has ended", "sh -c '" + newcomer + "' &", "wait $N"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			h := connectedInside(t)
			f := filepath.Join(t.TempDir(), "f")
			gone := h.start(process.Spec{Cmd: "/bin/sh", Args: []string{"-c", "setsid sh -c 'echo > " + f + ".apart; exec sleep 1000' & " +
				"until [ -e " + f + ".apart ]; do sleep 0.01; done; exit 5"}})
			h.await("the exit", func() bool { return h.procs[gone].exit != nil })
			other := h.start(process.Spec{Cmd: "bash", Stdin: true, Args: []string{"-c", reusePID +
				"until [ -e $F ]; do sleep 0.01; done; " + tt.settled + "; echo taken; read go; kill -TERM $(cat $F)"},
				Env: map[string]string{"N": fmt.Sprint(h.procs[gone].started), "GROUP": tt.group, "F": f}})
			p := h.procs[other]
			printed := func(word string) func() bool {
				return func() bool { return p.end != nil || bytes.Contains(p.out[process.Stdout], []byte(word)) }
			}
			h.await("the newcomer", printed("taken"))
			if p.end != nil {
				t.Fatalf("the newcomer: %s", describe(p.end))
			}
			if r := h.awaitReply(h.signal(gone, int32(syscall.SIGKILL))); r.Kind != kind.NotFound || r.Error == "" {
				t.Errorf("a signal to an ended process: %+v", r)
			}
			h.stdin(other, "go\n", false)
			h.await("the newcomer's answer", printed("lives"))
			if p.end != nil {
				t.Errorf("the newcomer was hit: %q, %s", p.out[process.Stdout], describe(p.exit))
			}
		})
	}
}

// TestSignalReachesTheGroupOfAnEndedProcess: processes that it left in its group still get
// signals.
func TestSignalReachesTheGroupOfAnEndedProcess(t *testing.T) {
	h := connected(t)
	token := h.start(process.Spec{Cmd: "/bin/sh", Args: []string{"-c", "sleep 1000 & exit 0"}})
	h.await("the exit", func() bool { return h.procs[token].exit != nil })
	if r := h.awaitReply(h.signal(token, int32(syscall.SIGKILL))); r.Error != "" {
		t.Errorf("a signal to the remaining group: %+v", r)
	}
	h.awaitEnd(token)
}

// TestRebootKillsProcessesWithoutAFirstThread, which look like zombies.
func TestRebootKillsProcessesWithoutAFirstThread(t *testing.T) {
	h := connected(t)
	token := h.start(process.Spec{Cmd: "/proc/self/exe", Args: []string{drivertest.HeadlessArg, ""}})
	h.awaitOutput(token, "headless")
	h.send(wire.AppendReboot(nil))
	if p := h.awaitEnd(token); describe(p.end) != "signaled by 9" {
		t.Errorf("%s", describe(p.end))
	}
}

// TestQueuedSignalsDoNotEndTheShim: also not signals that Go's runtime takes for its own
// faults, or that C libraries reserve.
func TestQueuedSignalsDoNotEndTheShim(t *testing.T) {
	socket, cmd := startShim(t)
	h := newHost(t, socket)
	h.connect()
	h.awaitEnd(h.start(sh("exit 0"))) // the shim has started completely
	for _, sig := range []int{4, 5, 7, 8, 11, 16, 31, 32, 33, 34} {
		kill := exec.Command("/bin/kill", "-q", "1", "-s", strconv.Itoa(sig), strconv.Itoa(cmd.Process.Pid))
		if out, err := kill.CombinedOutput(); err != nil {
			t.Fatalf("signal %d: %v, %s", sig, err, out)
		}
	}
	if r := h.awaitEnd(h.start(sh("exit 7"))); describe(r.exit) != "exited 7" {
		t.Errorf("got %s", describe(r.exit))
	}
}
