package e2e_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/millrace/millrace/e2e/rig"
)

// millrace runs a command of the binary under test and returns what it prints.
func millrace(t *testing.T, env []string, args ...string) (out string, ok bool) {
	t.Helper()
	cmd := exec.Command(rig.Binary(t), args...)
	cmd.Env = append([]string{"PATH=" + os.Getenv("PATH"), "HOME=" + t.TempDir()}, env...)
	raw, err := cmd.CombinedOutput()
	return string(raw), err == nil
}

// natsServer runs a NATS server until stop.
func natsServer(t *testing.T, dir, addr string) (stop func()) {
	t.Helper()
	cmd := exec.Command(rig.Binary(t), "nats", "--data", dir, "--listen", addr, "--log-level", "error")
	must(t, cmd.Start())
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	t.Cleanup(func() { cmd.Process.Kill() })
	return func() {
		must(t, cmd.Process.Signal(syscall.SIGTERM))
		must(t, <-ended)
	}
}

// installation is an `up` whose NATS server listens, with a master key of its own.
func installation(t *testing.T, data, master string) (u *rig.Up, nats []string) {
	t.Helper()
	addr, err := rig.FreeAddr()
	must(t, err)
	const token = "MILLRACE_NATS_TOKEN=only-for-this-test"
	u = rig.NewUp(t, rig.Options{Data: data, Args: []string{"--nats-listen", addr, "--master-key", master}, Env: []string{token}})
	return u, []string{token, "MILLRACE_NATS=nats://" + addr}
}

// A backup of a running installation, made in two parts, is restored on other servers: each
// ended record has the same bytes, cursors and keys are valid, and what ran is lost.
func TestBackupIsRestoredElsewhere(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	master, key, wrong, to := filepath.Join(dir, "master.key"), filepath.Join(dir, "backup.key"), filepath.Join(dir, "wrong.key"), filepath.Join(dir, "backups")
	must(t, os.WriteFile(master, []byte(strings.Repeat("5e", 32)), 0o600))
	must(t, os.WriteFile(key, []byte(strings.Repeat("ba", 32)), 0o600))
	must(t, os.WriteFile(wrong, []byte(strings.Repeat("bb", 32)), 0o600))
	old, nats := installation(t, "", master)
	removeLater(t, old)
	box := old.Create(t, "envVars", map[string]string{"SECRET_OF_BOX": "sealed"}).ID
	var ended []string
	run := func(cmd string) {
		t.Helper()
		ended = append(ended, old.StartStream(t, box, cmd).All(t).Process)
	}
	run("head -c 400000 /dev/urandom | base64; exit 3")
	ticking, _ := launch(t, old.API, box, counter{every: 10 * time.Millisecond}.spec())
	c := newCrowd(t)
	c.add("events", ticking, &eventsReader{id: ticking, lost: true}, []*rig.API{old.API}, 0)
	c.progress(t, 20)

	backUp := slices.Concat(nats, []string{"MILLRACE_BACKUP_KEY=" + key})
	if out, ok := millrace(t, backUp, "backup", "--to", to); !ok {
		t.Fatal(out)
	}
	run("seq 1 20000")
	c.progress(t, 20)
	if out, ok := millrace(t, backUp, "backup", "--to", to); !ok {
		t.Fatal(out)
	}
	if out, ok := millrace(t, backUp, "backup", "verify", "--from", to); !ok || !strings.Contains(out, "intact") {
		t.Fatal(out)
	}
	if out, ok := millrace(t, nil, "backup", "verify", "--from", to, "--backup-key", wrong); ok || !strings.Contains(out, "was sealed with the key") {
		t.Errorf("with another key: %s", out)
	}
	want := make(map[string]string)
	for _, id := range ended {
		want[id] = recordOf(t, old.API, id, "")
	}
	if out, ok := millrace(t, backUp, "restore", "--from", to); ok || !strings.Contains(out, "have streams already") {
		t.Errorf("into a running installation: %s", out)
	}
	old.Kill9()

	data := filepath.Join(dir, "restored")
	addr, err := rig.FreeAddr()
	must(t, err)
	stop := natsServer(t, filepath.Join(data, "nats"), addr)
	var out string
	if !rig.Poll(time.Minute, func() (ok bool) {
		out, ok = millrace(t, nil, "restore", "--from", to, "--backup-key", key, "--nats", "nats://"+addr)
		return ok || !strings.Contains(out, "connect to nats")
	}) || !strings.Contains(out, "restored backup") {
		t.Fatal(out)
	}
	stop()
	fresh, _ := installation(t, data, master)
	api := &rig.API{URL: fresh.URL, Key: old.Key}
	for _, id := range ended {
		if got := recordOf(t, api, id, ""); got != want[id] || len(got) < 1000 {
			t.Errorf("the record of %s has %d bytes, want %d", id, len(got), len(want[id]))
		}
		if got := recordOf(t, api, id, "?after=3"); got == "" || !strings.HasSuffix(want[id], got) {
			t.Errorf("from a cursor: %.200s", got)
		}
	}
	if end := rig.End(t, api.Events(t, ticking, "follow=1").All(t)); end.ExitCode != nil {
		t.Errorf("a process that ran ended with %s", end.Raw)
	}
	api.Want(t, 200, "GET", "/v2/sandboxes", nil)
	if ans, err := api.Call("GET", "/sandboxes/"+box, nil); err != nil || ans.Status != 404 {
		t.Errorf("the old sandbox: %v %v", ans, err)
	}
	if run := fresh.StartStream(t, fresh.Create(t).ID, "exit 3").All(t); run.End == nil {
		t.Error("a new sandbox runs no command")
	}
}

// removeLater restarts an installation at the end of the test: its sandboxes run until it has removed
// them.
func removeLater(t *testing.T, u *rig.Up) {
	t.Helper()
	t.Cleanup(func() {
		if !u.Running() {
			must(t, u.Restart())
		}
	})
}

// The backup of an installation on one server under load is restored on three servers with other hosts:
// records and snapshots are there, and the random killer finds nothing.
func TestBackupOfOneServerIsRestoredOnThree(t *testing.T) {
	dir := t.TempDir()
	master, key, to := filepath.Join(dir, "master.key"), filepath.Join(dir, "backup.key"), filepath.Join(dir, "backups")
	must(t, os.WriteFile(master, []byte(strings.Repeat("5e", 32)), 0o600))
	must(t, os.WriteFile(key, []byte(strings.Repeat("ba", 32)), 0o600))
	addr, err := rig.FreeAddr()
	must(t, err)
	const token = "MILLRACE_NATS_TOKEN=only-for-this-test"
	old := rig.NewUp(t, rig.Options{Args: []string{"--nats-listen", addr, "--master-key", master, "--log-level", "debug"}, Env: []string{token, "MILLRACE_API_KEY=" + rig.SplitKey}})
	removeLater(t, old)
	h := newOldHistory(t, old)
	backUp := []string{token, "MILLRACE_NATS=nats://" + addr, "MILLRACE_BACKUP_KEY=" + key}
	for range 2 { // the second one has what the first one has not
		h.run(t, "seq 1 30000; exit 3")
		if out, ok := millrace(t, backUp, "backup", "--to", to); !ok {
			t.Fatal(out)
		}
	}
	h.read(t)
	must(t, old.Term())

	s := newTopology(t, rig.Topology{
		NATS: 3, Gateways: 2, Schedulers: 2, Reapers: 2, Hosts: 2, AllEnv: []string{"MILLRACE_MASTER_KEY=" + master},
		Before: func(nats string) error {
			var out string
			var ok bool
			rig.Poll(time.Minute, func() bool {
				out, ok = millrace(t, nil, "restore", "--from", to, "--backup-key", key, "--nats", nats, "--replicas", "3")
				return ok || !strings.Contains(out, "connect to nats") && !strings.Contains(out, "cannot be reached")
			})
			if !ok {
				return errors.New(out)
			}
			return nil
		},
	})
	h.check(t, s)
	killRandomly(t, s, 25*time.Second)
	h.check(t, s)
}

// oldHistory is what an installation had before its backup.
type oldHistory struct {
	up       *rig.Up
	box      string
	snapshot string
	ended    map[string]string // records of ended processes
	running  string            // a process that writes during the backup
}

// newOldHistory starts a process that writes, and takes a snapshot, which is copied to the store.
func newOldHistory(t *testing.T, u *rig.Up) *oldHistory {
	t.Helper()
	h := &oldHistory{up: u, box: u.Create(t).ID, ended: make(map[string]string)}
	outputIn(t, u.API, h.box, "echo kept >~/kept")
	h.snapshot = snapshotOf(t, u.API, h.box)
	if !rig.Poll(time.Minute, func() bool { return strings.Contains(u.Log(), "snapshot copied") }) {
		t.Fatal("the snapshot was not copied")
	}
	h.running, _ = launch(t, u.API, h.box, counter{every: 5 * time.Millisecond}.spec())
	return h
}

// run runs a process to its end.
func (h *oldHistory) run(t *testing.T, cmd string) {
	t.Helper()
	h.ended[h.up.StartStream(t, h.box, cmd).All(t).Process] = ""
}

// read reads the records of the ended processes.
func (h *oldHistory) read(t *testing.T) {
	t.Helper()
	for id := range h.ended {
		h.ended[id] = recordOf(t, h.up.API, id, "")
	}
}

// check compares the records at each gateway with the old ones, and creates a sandbox from the snapshot.
func (h *oldHistory) check(t *testing.T, s *rig.Split) {
	t.Helper()
	for _, a := range s.APIs {
		for id, want := range h.ended {
			if got := recordOf(t, a, id, ""); got != want || len(got) < 1000 {
				t.Errorf("the record of %s has %d bytes, want %d", id, len(got), len(want))
			}
		}
		if end := rig.End(t, a.Events(t, h.running, "follow=1").All(t)); end.ExitCode != nil {
			t.Errorf("a process that ran ended with %s", end.Raw)
		}
		box := a.Create(t, "templateID", h.snapshot).ID
		if got := outputIn(t, a, box, "cat ~/kept"); got != "kept\n" {
			t.Errorf("a sandbox from the snapshot has %q", got)
		}
		a.Kill(t, box)
	}
}

// recordOf returns the stored events of a process as they are sent.
func recordOf(t *testing.T, a *rig.API, id, query string) string {
	t.Helper()
	return string(a.Want(t, 200, "GET", "/v1/processes/"+id+"/events"+query, nil).Body)
}
