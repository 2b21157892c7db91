package e2e_test

import (
	"bufio"
	"io"
	"net/http"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/e2e/rig"
)

// fleet starts two hosts, of which host-2 is drained.
func fleet(t *testing.T, args ...string) (*rig.Split, *rig.API) {
	t.Helper()
	if rig.Driver(t) == "direct" {
		t.Skip("the driver does not support templates")
	}
	s := rig.NewSplit(t, rig.Topology{Hosts: 2, HostArgs: args})
	cli(t, s.APIs[0], "host", "drain", "host-2")
	return s, s.APIs[0]
}

// outputIn returns the output of a command in a sandbox.
func outputIn(t *testing.T, a *rig.API, sandbox, command string) string {
	t.Helper()
	return rig.Output(a.Commands(t, sandbox, command).All(t), "stdout")
}

func snapshotOf(t *testing.T, a *rig.API, sandbox string) string {
	t.Helper()
	var snap struct {
		ID string `json:"snapshotID"`
	}
	a.Want(t, http.StatusCreated, http.MethodPost, "/sandboxes/"+sandbox+"/snapshots", map[string]any{}).Decode(t, &snap)
	return snap.ID
}

// A template built on one host and a snapshot from there can be used on another host while
// the first one drains and after it was killed permanently. A fork is placed on a host with
// capacity.
func TestTemplatesAndSnapshotsOutliveTheirHost(t *testing.T) {
	t.Parallel()
	s, a := fleet(t)
	b := startBuild(t, a, "moves", "cd; echo built > built; echo old > gone", "cd; rm gone; mkdir x && echo deep > x/y")
	if done := awaitBuild(t, a, b, "it ends", func(st *buildState) bool { return st.Status == "ready" || st.Status == "error" }); done.Status != "ready" {
		t.Fatalf("%+v", done)
	}
	box := a.Create(t, "templateID", "moves")
	if host := s.HostOf(t, a, box.ID); host != "host-1" {
		t.Fatalf("the first is on %s", host)
	}
	const want = "built deep kept\n"
	const readFiles = "cd; echo $(cat built x/y kept gone)"
	outputIn(t, a, box.ID, "echo kept > ~/kept")

	cli(t, a, "host", "drain", "host-1")
	cli(t, a, "host", "undrain", "host-2")
	var forks []struct{ Sandbox rig.Sandbox }
	a.Want(t, http.StatusCreated, http.MethodPost, "/sandboxes/"+box.ID+"/fork", map[string]any{"count": 1, "timeout": 120}).Decode(t, &forks)
	if host, got := s.HostOf(t, a, forks[0].Sandbox.ID), outputIn(t, a, forks[0].Sandbox.ID, readFiles); host != "host-2" || got != want {
		t.Errorf("a fork on %s prints %q", host, got)
	}
	snap := snapshotOf(t, a, box.ID)
	if got := outputIn(t, a, a.Create(t, "templateID", snap).ID, readFiles); got != want {
		t.Errorf("a sandbox from a snapshot of a draining host prints %q", got)
	}

	a.Want(t, http.StatusNoContent, http.MethodPost, "/sandboxes/"+box.ID+"/pause", nil)
	pausedSnap := snapshotOf(t, a, box.ID)
	if got := outputIn(t, a, a.Create(t, "templateID", pausedSnap).ID, readFiles); got != want {
		t.Errorf("a sandbox from a paused sandbox on a draining host prints %q", got)
	}

	s.Program("host-1").Kill9()
	for name, from := range map[string]string{"a snapshot": snap, "a template": "moves"} {
		made := a.Create(t, "templateID", from)
		got := outputIn(t, a, made.ID, readFiles)
		if host := s.HostOf(t, a, made.ID); host != "host-2" || !strings.HasPrefix(got, "built deep") {
			t.Errorf("%s, after its host was killed, on %s prints %q", name, host, got)
		}
	}
	if err := s.Program("host-1").Restart(); err != nil { // to end its remaining processes
		t.Fatal(err)
	}
	if !rig.Poll(30*time.Second, func() bool { return s.HostStates()["host-1"] == "draining" }) {
		t.Error("the host did not restart")
	}
}

// drain lists what only that host has: running and paused sandboxes, snapshots that are not
// in the store, and volumes. Snapshots are copied to the store; when nothing is listed any
// more, the host can be switched off without loss.
func TestDrainListsWhatWouldBeLost(t *testing.T) {
	t.Parallel()
	s, a := fleet(t, "--copy-ahead", "1", "--warm", "0") // a host that is not restarted would leave warm instances running
	runs, paused := a.Create(t), a.Create(t)
	outputIn(t, a, runs.ID, "echo kept > ~/kept")
	snap := snapshotOf(t, a, runs.ID)
	a.Want(t, http.StatusNoContent, http.MethodPost, "/sandboxes/"+paused.ID+"/pause", nil)
	var volume struct {
		ID string `json:"volumeID"`
	}
	a.Want(t, http.StatusCreated, http.MethodPost, "/volumes", map[string]any{"name": "only-here"}).Decode(t, &volume)
	names := func(text string, all ...string) {
		t.Helper()
		for _, want := range all {
			if !strings.Contains(text, want) {
				t.Errorf("%q is not in\n%s", want, text)
			}
		}
	}
	id := strings.TrimSuffix(snap, ":default")
	undrainable := func() string { return cli(t, a, "host", "undrainable", "host-1") }
	names(undrainable(), id, "not been copied", "must not be switched off", "would be lost: 4")
	names(cli(t, a, "host", "drain", "host-1"), runs.ID, "running", paused.ID, "paused", "only-here", "must not be switched off")
	if !rig.Poll(30*time.Second, func() bool { return !strings.Contains(undrainable(), id) }) {
		t.Fatalf("the snapshot is not copied:\n%s", undrainable())
	}
	names(cli(t, a, "host", "ls"), "draining, 3 left")

	// drain --wait fails once only volumes and paused sandboxes are left: the one that runs ends last.
	a.Kill(t, paused.ID)
	a.Want(t, http.StatusNoContent, http.MethodDelete, "/volumes/"+volume.ID, nil)
	if !rig.Poll(30*time.Second, func() bool { return strings.Contains(undrainable(), "would be lost: 1)") }) {
		t.Fatalf("more than one sandbox is left:\n%s", undrainable())
	}
	wait := exec.CommandContext(t.Context(), rig.Binary(t), "host", "drain", "--wait", "host-1")
	wait.Env = []string{"HOME=" + t.TempDir(), "MILLRACE_URL=" + a.URL, "MILLRACE_API_KEY=" + a.Key}
	out, err := wait.StdoutPipe()
	must(t, err)
	must(t, wait.Start())
	lines := bufio.NewReader(out)
	for line := ""; !strings.Contains(line, runs.ID); {
		line, err = lines.ReadString('\n')
		must(t, err)
	}
	a.Kill(t, runs.ID)
	rest, err := io.ReadAll(lines)
	must(t, err)
	must(t, wait.Wait())
	names(string(rest), "host-1 can be switched off: nothing would be lost")
	names(cli(t, a, "host", "ls"), "draining, empty")
	s.Program("host-1").Kill9()
	cli(t, a, "host", "undrain", "host-2")
	if got := outputIn(t, a, a.Create(t, "templateID", snap).ID, "cat ~/kept"); got != "kept\n" {
		t.Errorf("a sandbox from the snapshot prints %q", got)
	}
}
