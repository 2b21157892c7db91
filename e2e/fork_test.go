package e2e_test

import (
	"fmt"
	"net/http"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/millrace/millrace/e2e/rig"
)

// gvisorHere reports whether the driver gvisor works; tests do not build its program.
func gvisorHere(t *testing.T) bool {
	t.Helper()
	out, err := exec.Command(rig.Binary(t), "doctor").Output()
	if !regexp.MustCompile(`(?m)^driver gvisor +ok`).Match(out) {
		t.Logf("gvisor does not work here: %v\n%s", err, out)
		return false
	}
	return true
}

// withMemory runs `up` with a driver that keeps memory, and skips the test without one.
func withMemory(t *testing.T) *rig.Up {
	t.Helper()
	if !gvisorHere(t) {
		t.Skip("no driver that works here keeps memory")
	}
	return rig.NewUp(t, rig.Options{Driver: "gvisor"})
}

// A process continues to count in every fork of its sandbox. Each fork has a record of it
// that names the process that it continues: together they have every number once. The API
// reports that the memory was kept.
func TestProcessesContinueInForks(t *testing.T) {
	t.Parallel()
	u := withMemory(t)
	sbx := u.Create(t)
	counter := u.Commands(t, sbx.ID, "i=0; while [ ! -e /tmp/stop ]; do echo $i; i=$((i+1)); sleep 0.02; done; echo end")
	seen := counter.Until(t, func(l *rig.Line) bool { return l.Type == "stdout" && strings.Contains(string(l.Bytes()), "7\n") })
	id := seen[0].Process
	token, _, _ := strings.Cut(id, "-")

	var forks []struct {
		Sandbox rig.Sandbox
		Memory  bool
	}
	u.Want(t, http.StatusCreated, http.MethodPost, "/sandboxes/"+sbx.ID+"/fork", map[string]any{"count": 2, "timeout": 120}).Decode(t, &forks)
	all := []string{sbx.ID}
	for _, f := range forks {
		if !f.Memory {
			t.Error("the memory was not kept")
		}
		all = append(all, f.Sandbox.ID)
	}
	for _, box := range all {
		if out := rig.Output(u.Commands(t, box, "touch /tmp/stop; hostname >/dev/null; echo stopped").All(t), "stdout"); out != "stopped\n" {
			t.Errorf("in %s: %q", box, out)
		}
	}
	origin := u.Events(t, id, "").All(t)
	for _, box := range all[1:] {
		lines := u.Events(t, token+"-"+box, "").All(t)
		first := lines[0]
		if first.From != id || first.After == nil {
			t.Fatalf("a fork's record starts with %s", first.Raw)
		}
		var before []*rig.Line
		for _, l := range origin {
			if l.Seq <= *first.After {
				before = append(before, l)
			}
		}
		wantCount(t, rig.Output(before, "stdout")+rig.Output(lines, "stdout"))
	}
	wantCount(t, rig.Output(origin, "stdout"))
}

// wantCount checks that out counts from 0 to its end without a gap or a repetition.
func wantCount(t *testing.T, out string) {
	t.Helper()
	body, ended := strings.CutSuffix(out, "end\n")
	n := 0
	for line := range strings.Lines(body) {
		if line != fmt.Sprintln(n) {
			t.Fatalf("%q where %d should be", line, n)
		}
		n++
	}
	if !ended || n < 8 {
		t.Errorf("%d numbers, ended %v", n, ended)
	}
}
