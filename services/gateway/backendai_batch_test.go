package gateway_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/events/process"
	"github.com/millrace/millrace/events/sandbox"
)

// batched makes the host end each command of a batch session: with 3 if it is `fail`.
func (f *fixture) batched() {
	f.host.Script = func(spec *process.Spec) (out string, ends, ok bool) {
		if spec.Tag == nil || *spec.Tag != "batch" {
			return "", false, false
		}
		return "output of " + spec.Args[len(spec.Args)-1] + "\n", true, true
	}
}

// The command of a batch session runs once, whichever gateway created the session, and its exit is
// the end of the session.
func TestBackendAIBatchSession(t *testing.T) {
	f, g := twoGateways(t)
	f.batched()
	one, two := f.signer(), g.signer()
	for name, extra := range map[string]string{"batch-waited": "", "batch-enqueued": `"enqueueOnly":true,`} {
		l := two.listen("/events/session?scope=session&name="+name, "")
		c := one.create("/session", `{"image":"base","name":"`+name+`",`+extra+`"type":"batch","startupCommand":"make all"}`, 201)
		task := two.listen("/events/background-task?taskId="+c.SessionID, "")
		all := l.until("session_terminated")
		if want := []string{"session_success", "session_terminating", "session_terminated"}; !slices.Equal(names(all[len(all)-3:]), want) {
			t.Errorf("%q, want %q at the end", names(all), want)
		}
		for _, e := range all[len(all)-3:] {
			if e.data.Reason != "task-finished" || e.data.ExitCode == nil || *e.data.ExitCode != 0 {
				t.Errorf("%s: %s", e.name, e.raw)
			}
		}
		ended := names(task.until("server_close"))
		if want := []string{"bgtask_done", "task_done", "server_close"}; !slices.Equal(ended[len(ended)-3:], want) {
			t.Errorf("task: %q, want %q at the end", ended, want)
		}
		if e, ok := task.next(); ok {
			t.Errorf("after the end of the task: %+v", e)
		}
		again := names(one.listen("/events/background-task?task_id="+c.SessionID, "").until("server_close"))
		if want := []string{"bgtask_done", "task_done", "server_close"}; !slices.Equal(again, want) {
			t.Errorf("task that has ended: %q, want %q", again, want)
		}
		if a := two.do("GET", "/session/"+name+"/logs", ""); a.code != 200 || !strings.Contains(a.body, "output of make all") {
			t.Errorf("logs: %d %s", a.code, a.body)
		}
		two.do("GET", "/session/"+name, "").problem(t, "after the end", 404, "object-not-found")
		if n := len(f.view.Processes("", func(s *process.Summary) bool {
			return s.Spec.Tag != nil && *s.Spec.Tag == "batch" && string(s.ID.Sandbox()) != ""
		})); n == 0 {
			t.Error("no command ran")
		}
	}
	if n := len(f.view.Processes("", func(s *process.Summary) bool { return s.Spec.Tag != nil && *s.Spec.Tag == "batch" })); n != 2 {
		t.Errorf("%d commands of two sessions", n)
	}
}

// A session with a run does not end for being idle, and one without is left alone.
func TestBackendAIWorkKeepsASession(t *testing.T) {
	f := newFixture(t)
	f.scripted()
	s := f.signer()
	for _, name := range []string{"working", "resting"} {
		s.create("/session", `{"image":"base","name":"`+name+`","idleTimeout":4}`, 201)
	}
	s.execute("/session/working", "query", "", "", nil) // its run prints nothing, and goes on
	deadlines := func() map[string]time.Time {
		out := map[string]time.Time{}
		for _, st := range f.view.Sandboxes(func(*sandbox.State) bool { return true }) {
			out[st.Request.Metadata["backendai.name"]] = st.Deadline
		}
		return out
	}
	before := deadlines()
	changed, stop := f.view.Changes()
	defer stop()
	for late := time.After(time.Minute); !deadlines()["working"].After(before["working"]); {
		select {
		case <-changed:
		case <-late:
			t.Fatal("the deadline of a session with a run did not move")
		}
	}
	if now := deadlines()["resting"]; !now.Equal(before["resting"]) {
		t.Errorf("the deadline of a session without work moved from %v to %v", before["resting"], now)
	}
}
