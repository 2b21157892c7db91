package e2e_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/e2e/rig"
)

// states returns the state files of a host's sandboxes.
func states(t *testing.T, s *rig.Split, host string) []string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(s.Dir, host, "sandboxes", "*", "state.json"))
	must(t, err)
	return found
}

// reboot simulates a reboot of a host: its daemon and all processes in its sandboxes are
// killed, and the state on the disk is from an earlier boot.
func reboot(t *testing.T, s *rig.Split, host string) {
	t.Helper()
	s.Program(host).Kill9()
	if !rig.Poll(20*time.Second, func() bool { return rig.KillAll(filepath.Join(s.Dir, host)) == 0 }) {
		t.Fatal("processes do not end")
	}
	for _, file := range states(t, s, host) {
		raw, err := os.ReadFile(file)
		must(t, err)
		var state map[string]any
		must(t, json.Unmarshal(raw, &state))
		if state["boot"] == nil {
			t.Fatalf("%s: %s", file, raw)
		}
		// From now on the pid may belong to another process, which must not be touched.
		state["pid"], state["boot"] = os.Getpid(), "an earlier one"
		raw, err = json.Marshal(state)
		must(t, err)
		must(t, os.WriteFile(file, raw, 0o600))
	}
}

// After a reboot of a host all its processes are lost: each record ends without an exit
// code, nothing remains on the host, and it accepts sandboxes again by itself.
func TestFaultMachineReboots(t *testing.T) {
	for _, driver := range []string{"namespace", "gvisor"} {
		t.Run(driver, func(t *testing.T) {
			t.Parallel()
			rig.SkipUnless(t, rig.Options{Driver: driver})
			machineReboots(t, newTopology(t, rig.Topology{Driver: driver}))
		})
	}
}

func machineReboots(t *testing.T, s *rig.Split) {
	t.Helper()
	a := s.APIs[0]
	var boxes, ids []string
	for range 3 {
		box := a.Create(t).ID
		boxes = append(boxes, box)
		for i := range 4 {
			spec := counter{every: 10 * time.Millisecond}.spec()
			if i == 3 {
				spec = counter{every: 10 * time.Millisecond}.terminal()
			}
			id, _ := launch(t, a, box, spec)
			ids = append(ids, id)
		}
	}
	reboot(t, s, "host-1")
	must(t, s.RestartProgram("host-1"))
	for _, id := range ids {
		lines := a.Events(t, id, "follow=1").All(t)
		// If the reboot takes longer than the lease, the host is lost.
		if end := rig.End(t, lines); end.ExitCode != nil || end.Cause != "shim_lost" && end.Cause != "host_lost" {
			t.Errorf("%s", end.Raw)
		}
	}
	must(t, s.Settled(1))
	if !rig.Poll(progressTimeout, func() bool {
		left, err := os.ReadDir(filepath.Join(s.Dir, "host-1", "sandboxes"))
		return err == nil && len(left) == 0
	}) {
		t.Error("a sandbox's directory is left")
	}
	for _, box := range boxes {
		if left := traces(t, box); len(left) > 0 {
			t.Errorf("left of sandbox %s: %q", box, left)
		}
	}
	if run := a.StartStream(t, a.Create(t).ID, "exit 3").All(t); run.End == nil {
		t.Errorf("after the reboot: %+v", run)
	}
}

// traces returns the mounts and cgroups of this machine with a sandbox's id.
func traces(t *testing.T, box string) (all []string) {
	t.Helper()
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	must(t, err)
	for line := range strings.Lines(string(mounts)) {
		if strings.Contains(line, box) {
			all = append(all, line)
		}
	}
	for depth := range 4 {
		groups, err := filepath.Glob("/sys/fs/cgroup" + strings.Repeat("/*", depth) + "/*" + box + "*")
		must(t, err)
		all = append(all, groups...)
	}
	return all
}
