package e2e_test

import (
	"net/http"
	"testing"

	"github.com/millrace/millrace/e2e/rig"
)

// complaint runs a case of complaints.mjs. Each problem that users of E2B reported has a
// test, here or elsewhere:
//
//	 1 a stalled reader silences all others   TestSlowReaderDoesNotDelayOthers, TestFaultReaderStops
//	 2 a stalled reader blocks the process    TestEndFollowsOutput, TestSlowReaderLosesNothing
//	 3 a reader that leaves blocks others     TestTwoReadersSeeTheSame, TestFaultClientGoneAfterEveryEvent
//	 4 output stalls after a resume           TestOutputAfterEachResume
//	 5 output stalls after a large response   TestLargeAnswersAfterResume
//	 6 an ended command is "not found"        TestEndedCommandsAreFound, TestRecordOutlivesSandbox
//	 7 background commands end after 60 s     TestTimeoutIsReported: the SDK requests it; the record has the cause
//	 8 commands end with their client         TestCommandsOutliveClients
//	 9 a kill leaves children running         TestKillEndsTheChildren
//	10 paused sandboxes are not listed        TestPausedSandboxesAreListed
//	11 results are lost with the connection   TestResultsWaitForTheirClient
//	12 run_code: "peer closed connection"     TestRunsOutliveGateways
//	13 kernels are interrupted or blocked     TestInterpreterRunOutlivesItsClient, TestInterpreterSDK
//	14 sandboxes end without a reason         TestEndsHaveACause
//	15 a resume loses files                   TestFilesAfterEachResume
//	16 several shells require tmux            TestIndependentShells
//	17 keys are reordered                     TestKeysKeepTheirOrder; in one stream: TestConnectGo (StreamInput)
//	18 long output is slow                    TestLongOutput; part of it is the SDK's own time
//	19 self-hosting is hard, requires KVM     TestRecipes, TestWireMessagesMatchTheSchema, TestSDK (files at one plain-http port)
//	20 handles are lost by pause and fork     TestHandlesSurviveAFork; pause: TestOutputAfterEachResume
func complaint(t *testing.T, name string) {
	t.Helper()
	t.Parallel()
	runNode(t, api(t), "suite.mjs", "e2b", name)
}

func TestOutputAfterEachResume(t *testing.T)    { complaint(t, "outputAfterEachResume") }
func TestLargeAnswersAfterResume(t *testing.T)  { complaint(t, "largeAnswersAfterResume") }
func TestEndedCommandsAreFound(t *testing.T)    { complaint(t, "endedCommands") }
func TestTimeoutIsReported(t *testing.T)        { complaint(t, "backgroundTimeout") }
func TestCommandsOutliveClients(t *testing.T)   { complaint(t, "clientKilled") }
func TestKillEndsTheChildren(t *testing.T)      { complaint(t, "killTakesTheChildren") }
func TestPausedSandboxesAreListed(t *testing.T) { complaint(t, "listedAfterPause") }
func TestFilesAfterEachResume(t *testing.T)     { complaint(t, "filesAfterEachResume") }
func TestIndependentShells(t *testing.T)        { complaint(t, "independentShells") }
func TestKeysKeepTheirOrder(t *testing.T)       { complaint(t, "keysInOrder") }
func TestLongOutput(t *testing.T)               { complaint(t, "longOutput") }
func TestHandlesSurviveAFork(t *testing.T)      { complaint(t, "handlesSurvive") }

// Another client is notified of a result that its own client did not wait for, and reads it.
func TestResultsWaitForTheirClient(t *testing.T) {
	t.Parallel()
	a := api(t)
	box := a.Create(t)
	tail := a.Stream(t, http.MethodGet, "/v1/events?kind=end&sandbox="+box.ID, nil)
	client := a.Commands(t, box.ID, "sleep 0.3; echo result; exit 3")
	id := client.Must(t).Process
	client.Close()
	end := tail.Must(t)
	if end.Process != id || end.Type != "end" || end.ExitCode == nil || *end.ExitCode != 3 {
		t.Errorf("notified of %s", end.Raw)
	}
	if out := rig.Output(a.Events(t, id, "").All(t), "stdout"); out != "result\n" {
		t.Errorf("the record has %q", out)
	}
}

// A gateway that stops ends the stream of a run in order; the run continues, and another
// gateway has all of it.
func TestRunsOutliveGateways(t *testing.T) {
	t.Parallel()
	s := newTopology(t, rig.Topology{Gateways: 2})
	in := interpreter{s.APIs[0], s.APIs[0].Create(t).ID}
	const code = "import time\nfor i in range(60):\n    print(i, flush=True)\n    time.sleep(0.05)"
	r := in.Stream(t, http.MethodPost, "/execute", map[string]any{"code": code}, in.headers()...)
	r.Until(t, func(l *rig.Line) bool { return l.Type == "stdout" })
	if err := s.Program("gateway-1").Term(); err != nil {
		t.Error(err)
	}
	rest := r.All(t)
	if n := len(rest); n < 2 || rest[n-2].Type != "error" || rest[n-1].Type != "end_of_execution" {
		t.Errorf("the last lines of a gateway:\n%s", raws(rest))
	}
	lines := s.APIs[1].Events(t, r.Header.Get("X-Process-Id"), "").All(t)
	if got := parse(t, rig.Output(lines, "stdout")); len(got) != 60 {
		t.Errorf("the record has %d of 60 lines", len(got))
	}
}

// Records have the cause of a sandbox's end, and the ends of its processes.
func TestEndsHaveACause(t *testing.T) {
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
			t.Errorf("%s: the end of a process: %s", cause, end.Raw)
		}
	}
}
