package e2e_test

import (
	"strings"
	"testing"

	"github.com/millrace/millrace/e2e/rig"
)

// TestProcessesOfEveryDriver tests the shim in a sandbox of each driver: input and its end,
// terminals, signals and exits.
func TestProcessesOfEveryDriver(t *testing.T) {
	for _, d := range []struct {
		name string
		args []string
	}{{"namespace", nil}, {"gvisor", nil}, {"microvm", []string{"--tcg"}}, {"direct", nil}} {
		t.Run(d.name, func(t *testing.T) {
			t.Parallel() // the emulated machine uses one CPU, the others mostly wait
			rig.SkipUnless(t, rig.Options{Driver: d.name, Args: d.args})
			a := newTopology(t, rig.Topology{Driver: d.name, HostArgs: d.args}).APIs[0]
			box := a.Create(t, "timeout", 3600).ID
			t.Run("input", func(t *testing.T) { takesInput(t, a, box) })
			t.Run("terminal", func(t *testing.T) { hasTerminals(t, a, box) })
			t.Run("kill", func(t *testing.T) { killsGroups(t, a, box) })
			t.Run("runtime", func(t *testing.T) { runsConversations(t, a, box, d.name != "direct") })
			t.Run("ends", func(t *testing.T) { reportsEnds(t, a, box) })
		})
	}
}

// sh returns a request for a script of a plain shell.
func sh(script string, more ...any) map[string]any {
	return spec("/bin/sh", []string{"-c", script}, more...)
}

func takesInput(t *testing.T, a *rig.API, box string) {
	t.Helper()
	r := a.StartSpec(t, box, sh("cat; echo; echo after the end; exit 5", "stdin", true))
	pid := r.Started(t).Event.Start.PID
	a.RPC(t, box, "/process.Process/SendInput", byPID(pid, "input", stdin([]byte("one "))))
	a.RPC(t, box, "/process.Process/SendInput", byPID(pid, "input", stdin([]byte("two\x00\xff"))))
	a.RPC(t, box, "/process.Process/CloseStdin", byPID(pid))
	var out []byte
	end, _ := restOf(t, r, func(b []byte) { out = append(out, b...) })
	if string(out) != "one two\x00\xff\nafter the end\n" || end == nil || end.ExitCode != 5 {
		t.Errorf("%q, %+v", out, end)
	}
}

func hasTerminals(t *testing.T, a *rig.API, box string) {
	t.Helper()
	r := a.StartSpec(t, box, sh(`stty size; trap "echo interrupted; exit 3" INT; read x; stty size; while :; do sleep 0.05; done`, "pty", pty(80, 24)))
	pid := r.Started(t).Event.Start.PID
	until(t, r, "24 80\r\n")
	a.RPC(t, box, "/process.Process/Update", byPID(pid, "pty", pty(132, 43)))
	a.RPC(t, box, "/process.Process/SendInput", byPID(pid, "input", keys("\n")))
	until(t, r, "43 132\r\n")
	a.RPC(t, box, "/process.Process/SendInput", byPID(pid, "input", keys("\x03")))
	var out []byte
	if end, _ := restOf(t, r, func(b []byte) { out = append(out, b...) }); !strings.Contains(string(out), "interrupted") || end == nil || end.ExitCode != 3 {
		t.Errorf("%q, %+v", out, end)
	}
}

// killsGroups kills a process that ignores SIGTERM, and its children.
func killsGroups(t *testing.T, a *rig.API, box string) {
	t.Helper()
	r := a.StartSpec(t, box, sh(`trap "" TERM; sleep 43210 & echo ready; while :; do wait; done`))
	pid := r.Started(t).Event.Start.PID
	until(t, r, "ready\n")
	a.RPC(t, box, "/process.Process/SendSignal", byPID(pid, "signal", "SIGNAL_SIGTERM"))
	const left = `cat /proc/[0-9]*/cmdline 2>/dev/null | tr '\000' ' ' | grep -c 'sleep 4321[0]'; true`
	if got := outputIn(t, a, box, left); got != "1\n" {
		t.Errorf("before the kill: %q run", got)
	}
	a.RPC(t, box, "/process.Process/SendSignal", byPID(pid, "signal", "SIGNAL_SIGKILL"))
	if end, _ := restOf(t, r, func([]byte) {}); end == nil || !strings.Contains(end.Status, "killed") {
		t.Errorf("end %+v", end)
	}
	if got := outputIn(t, a, box, left); got != "0\n" {
		t.Errorf("after the kill: %q run", got)
	}
}

func reportsEnds(t *testing.T, a *rig.API, box string) {
	t.Helper()
	for script, want := range map[string]string{
		"exit 0": `"exit_code":0`, "exit 255": `"exit_code":255`, "kill -SEGV $$": `"signal":11`, "no-such-program": `"exit_code":127`,
	} {
		id, _ := launch(t, a, box, sh(script))
		if end := rig.End(t, a.Events(t, id, "follow=1").All(t)); !strings.Contains(end.Raw, want) {
			t.Errorf("%s: %s, want %s", script, end.Raw, want)
		}
	}
}
