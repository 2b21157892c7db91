package e2e_test

import (
	"net/http"
	"testing"

	"github.com/millrace/millrace/e2e/rig"
)

// What users of E2B complain of, as far as it can be shown: here, or where
// another test shows it already.
//
//	 1 a stale reader silences all others        TestTortureB31SlowBesideFast, TestFaultReaderStops
//	 2 and holds up the process                  TestC022, TestC046
//	 3 a reader that leaves blocks the others    TestTortureB29TwoReaders, TestFaultClientGoneAfterEveryEvent
//	 4 output stalls after a resume              TestComplaint04
//	 5 or after a large answer                   TestComplaint05
//	 6 a command that ended is "not found"       TestComplaint06, TestTortureB36AfterSandbox
//	 7 background commands end after 60 s        TestComplaint07: the SDK asks for that; the record says so
//	 8 commands end with their client            TestComplaint08
//	 9 a kill leaves the children                TestComplaint09
//	10 what was paused is not listed             TestComplaint10
//	11 results are lost with the connection      TestComplaint11
//	12 run_code: "peer closed connection"        TestComplaint12
//	13 kernels are interrupted, or blocked       TestInterpreterRunOutlivesItsClient, TestInterpreterSDK
//	14 sandboxes end without a reason            TestComplaint14
//	15 a resume loses files                      TestComplaint15
//	16 several shells want tmux                  TestComplaint16
//	17 keys are reordered                        TestComplaint17; in one stream: TestConnectGo (StreamInput)
//	18 long output is slow                       TestComplaint18; the SDK's own part is the SDK's
//	19 self-hosting is hard, needs KVM           TestRecipes, TestN012, TestSDK (files at one plain-http port)
//	20 handles do not survive pause and fork     TestComplaint20; pause: TestComplaint04
func complaint(t *testing.T, name string) {
	t.Helper()
	t.Parallel()
	runNode(t, api(t), "suite.mjs", "e2b", name)
}

func TestComplaint04OutputAfterEachResume(t *testing.T)   { complaint(t, "outputAfterEachResume") }
func TestComplaint05LargeAnswersAfterResume(t *testing.T) { complaint(t, "largeAnswersAfterResume") }
func TestComplaint06EndedCommandsAreThere(t *testing.T)   { complaint(t, "endedCommands") }
func TestComplaint07TimeoutsAreTold(t *testing.T)         { complaint(t, "backgroundTimeout") }
func TestComplaint08CommandsOutliveClients(t *testing.T)  { complaint(t, "clientKilled") }
func TestComplaint09KillTakesTheChildren(t *testing.T)    { complaint(t, "killTakesTheChildren") }
func TestComplaint10ListedAfterAPause(t *testing.T)       { complaint(t, "listedAfterPause") }
func TestComplaint15FilesAfterEachResume(t *testing.T)    { complaint(t, "filesAfterEachResume") }
func TestComplaint16IndependentShells(t *testing.T)       { complaint(t, "independentShells") }
func TestComplaint17KeysInOrder(t *testing.T)             { complaint(t, "keysInOrder") }
func TestComplaint18LongOutput(t *testing.T)              { complaint(t, "longOutput") }
func TestComplaint20HandlesSurviveAFork(t *testing.T)     { complaint(t, "handlesSurvive") }

// Somebody else is told of a result that its client did not wait for, and reads it.
func TestComplaint11ResultsWait(t *testing.T) {
	t.Parallel()
	a := api(t)
	box := a.Create(t)
	told := a.Stream(t, http.MethodGet, "/v1/events?kind=end&sandbox="+box.ID, nil)
	client := a.Commands(t, box.ID, "sleep 0.3; echo result; exit 3")
	id := client.Must(t).Process
	client.Close()
	end := told.Must(t)
	if end.Process != id || end.Type != "end" || end.ExitCode == nil || *end.ExitCode != 3 {
		t.Errorf("told %s", end.Raw)
	}
	if out := rig.Output(a.Events(t, id, "").All(t), "stdout"); out != "result\n" {
		t.Errorf("the record has %q", out)
	}
}

// A gateway that goes away ends the answer of a run in order; the run goes on, and
// another gateway has all of it.
func TestComplaint12RunsOutliveGateways(t *testing.T) {
	t.Parallel()
	s := newStage(t, rig.Topology{Gateways: 2})
	in := interpreter{s.APIs[0], s.APIs[0].Create(t).ID}
	const code = "import time\nfor i in range(60):\n    print(i, flush=True)\n    time.sleep(0.05)"
	r := in.Stream(t, http.MethodPost, "/execute", map[string]any{"code": code}, in.headers()...)
	r.Until(t, func(l *rig.Line) bool { return l.Type == "stdout" })
	if err := s.Program("gateway-1").Term(); err != nil {
		t.Error(err)
	}
	rest := r.All(t)
	if n := len(rest); n < 2 || rest[n-2].Type != "error" || rest[n-1].Type != "end_of_execution" {
		t.Errorf("the last words of a gateway:\n%s", raws(rest))
	}
	lines := s.APIs[1].Events(t, r.Header.Get("X-Process-Id"), "").All(t)
	if got := parse(t, rig.Output(lines, "stdout")); len(got) != 60 {
		t.Errorf("the record has %d of 60 lines", len(got))
	}
}

// Why a sandbox has ended is on record, and so is what became of its processes.
func TestComplaint14EndsSayWhy(t *testing.T) {
	t.Parallel()
	a := api(t)
	for cause, end := range map[string]func(id string){
		"user": func(id string) { a.Kill(t, id) },
		"timeout": func(id string) {
			a.Want(t, http.StatusNoContent, http.MethodPost, "/sandboxes/"+id+"/timeout", map[string]int{"timeout": 1})
		},
	} {
		box := a.Create(t)
		running := a.Commands(t, box.ID, "sleep 100").Must(t).Process
		end(box.ID)
		r := a.Stream(t, http.MethodGet, "/v1/events?kind=sandbox&after=1h&sandbox="+box.ID, nil)
		r.Until(t, func(l *rig.Line) bool { return l.Type == "stopping" && l.Cause == cause })
		r.Until(t, func(l *rig.Line) bool { return l.Type == "destroyed" && l.Cause == cause })
		if end := rig.End(t, a.Events(t, running, "").All(t)); end.Cause != "sandbox_gone" {
			t.Errorf("%s: a process ended so: %s", cause, end.Raw)
		}
	}
}
