package e2e_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/e2e/rig"
)

// buildMade is the response to the start of a build.
type buildMade struct {
	Template string `json:"templateID"`
	Build    string `json:"buildID"`
}

// buildState is the status of a build with its complete log.
type buildState struct {
	Status string `json:"status"`
	Reason struct {
		Message string `json:"message"`
		Step    string `json:"step"`
	} `json:"reason"`
	Entries []struct {
		Message string `json:"message"`
	} `json:"logEntries"`
}

// startBuild starts a build from the base template with the commands as steps.
func startBuild(t *testing.T, a *rig.API, name string, commands ...string) buildMade {
	t.Helper()
	return startBuildAs(t, a, "", name, commands...)
}

// startBuildAs is startBuild with commands of a user; empty: the default user.
func startBuildAs(t *testing.T, a *rig.API, user, name string, commands ...string) buildMade {
	t.Helper()
	var b buildMade
	a.Want(t, 202, "POST", "/v3/templates", map[string]any{"name": name}).Decode(t, &b)
	var steps []map[string]any
	for _, c := range commands {
		args := []string{c}
		if user != "" {
			args = append(args, user)
		}
		steps = append(steps, map[string]any{"type": "RUN", "args": args})
	}
	a.Want(t, 202, "POST", "/v2/templates/"+b.Template+"/builds/"+b.Build, map[string]any{"fromImage": "e2bdev/base", "steps": steps})
	return b
}

func statusOf(t *testing.T, a *rig.API, b buildMade) (s buildState) {
	t.Helper()
	a.Want(t, 200, "GET", "/templates/"+b.Template+"/builds/"+b.Build+"/status", nil).Decode(t, &s)
	return s
}

// awaitBuild waits until is accepts the build's status.
func awaitBuild(t *testing.T, a *rig.API, b buildMade, what string, is func(*buildState) bool) buildState {
	t.Helper()
	var s buildState
	if !rig.Poll(90*time.Second, func() bool { s = statusOf(t, a, b); return is(&s) }) {
		t.Fatalf("%s: %+v", what, s)
	}
	return s
}

// count returns the number of output lines that begin with a text.
func (s *buildState) count(text string) (n int) {
	for _, e := range s.Entries {
		if strings.Contains(e.Message, "[stdout]: "+text) {
			n++
		}
	}
	return n
}

// A build continues when its gateway is killed: another gateway takes over the running
// command. When the host of its sandbox is killed, the build fails with an error.
func TestBuildsOutliveGatewaysAndNotHosts(t *testing.T) {
	t.Parallel()
	if rig.Driver(t) == "direct" {
		t.Skip("the driver makes nothing from templates")
	}
	s := rig.NewSplit(t, rig.Topology{Gateways: 2, Hosts: 1})
	a := s.APIs[1]
	b := startBuild(t, s.APIs[0], "outlives", "echo begun >> /tmp/count; for i in $(seq 5); do echo tick $i.; done; sleep 4; echo end; cat /tmp/count | wc -l", "true")
	awaitBuild(t, a, b, "the first step starts", func(st *buildState) bool { return st.count("tick 5.") == 1 })
	s.Program("gateway-1").Kill9()
	done := awaitBuild(t, a, b, "it ends", func(st *buildState) bool { return st.Status == "ready" || st.Status == "error" })
	if done.Status != "ready" || done.count("end") != 1 || done.count("1") != 1 {
		t.Errorf("%+v", done)
	}
	for i := 1; i <= 5; i++ {
		if n := done.count(fmt.Sprintf("tick %d.", i)); n != 1 {
			t.Errorf("tick %d. occurs %d times: %+v", i, n, done)
		}
	}
	a.Create(t, "templateID", "outlives")
	if err := s.Program("gateway-1").Restart(); err != nil {
		t.Fatal(err)
	}

	lost := startBuild(t, a, "lost", "echo begun; sleep 600")
	awaitBuild(t, a, lost, "the step starts", func(st *buildState) bool { return st.count("begun") == 1 })
	s.Program("host-1").Kill9()
	failed := awaitBuild(t, a, lost, "it fails", func(st *buildState) bool { return st.Status == "error" })
	if failed.Reason.Step != "1" || failed.Reason.Message == "" {
		t.Errorf("%+v", failed)
	}
	t.Logf("without its host: %s", failed.Reason.Message)
	if err := s.Program("host-1").Restart(); err != nil {
		t.Fatal(err)
	}
	if !rig.Poll(30*time.Second, func() bool { return a.AliveHosts() == 1 }) {
		t.Error("the host did not return")
	}
}
