package e2e_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/e2e/rig"
)

// buildMade is a build as its client knows it.
type buildMade struct {
	Template string `json:"templateID"`
	Build    string `json:"buildID"`
}

// buildState is what its status says, with all of its log.
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

// startBuild begins a build on the base; a step is a command.
func startBuild(t *testing.T, a *rig.API, name string, commands ...string) buildMade {
	t.Helper()
	var b buildMade
	a.Want(t, 202, "POST", "/v3/templates", map[string]any{"name": name}).Decode(t, &b)
	var steps []map[string]any
	for _, c := range commands {
		steps = append(steps, map[string]any{"type": "RUN", "args": []string{c}})
	}
	a.Want(t, 202, "POST", "/v2/templates/"+b.Template+"/builds/"+b.Build, map[string]any{"fromImage": "e2bdev/base", "steps": steps})
	return b
}

func statusOf(t *testing.T, a *rig.API, b buildMade) (s buildState) {
	t.Helper()
	a.Want(t, 200, "GET", "/templates/"+b.Template+"/builds/"+b.Build+"/status", nil).Decode(t, &s)
	return s
}

// awaitBuild waits until what the build's status says is as it should be.
func awaitBuild(t *testing.T, a *rig.API, b buildMade, what string, is func(*buildState) bool) buildState {
	t.Helper()
	var s buildState
	if !rig.Poll(90*time.Second, func() bool { s = statusOf(t, a, b); return is(&s) }) {
		t.Fatalf("%s: %+v", what, s)
	}
	return s
}

// count counts the lines of output that begin with a text.
func (s *buildState) count(text string) (n int) {
	for _, e := range s.Entries {
		if strings.Contains(e.Message, "[stdout]: "+text) {
			n++
		}
	}
	return n
}

// A build outlives the gateway that does it: another goes on with the very command
// that runs. When the host of its sandbox dies, it fails and says so.
func TestBuildsOutliveGatewaysAndNotHosts(t *testing.T) {
	t.Parallel()
	if rig.Driver(t) == "direct" {
		t.Skip("the driver makes nothing from templates")
	}
	s := rig.NewSplit(t, rig.Topology{Gateways: 2, Hosts: 1})
	a := s.APIs[1]
	b := startBuild(t, s.APIs[0], "outlives", "echo begun >> /tmp/count; for i in $(seq 5); do echo tick $i.; done; sleep 4; echo end; cat /tmp/count | wc -l", "true")
	awaitBuild(t, a, b, "the first step begins", func(st *buildState) bool { return st.count("tick 5.") == 1 })
	s.Program("gateway-1").Kill9()
	done := awaitBuild(t, a, b, "it ends", func(st *buildState) bool { return st.Status == "ready" || st.Status == "error" })
	if done.Status != "ready" || done.count("end") != 1 || done.count("1") != 1 {
		t.Errorf("%+v", done)
	}
	for i := 1; i <= 5; i++ {
		if n := done.count(fmt.Sprintf("tick %d.", i)); n != 1 {
			t.Errorf("tick %d. is there %d times: %+v", i, n, done)
		}
	}
	a.Create(t, "templateID", "outlives")
	if err := s.Program("gateway-1").Restart(); err != nil {
		t.Fatal(err)
	}

	lost := startBuild(t, a, "lost", "echo begun; sleep 600")
	awaitBuild(t, a, lost, "the step begins", func(st *buildState) bool { return st.count("begun") == 1 })
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
		t.Error("the host did not come back")
	}
}
