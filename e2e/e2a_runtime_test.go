package e2e_test

import (
	"strings"
	"testing"

	"github.com/millrace/millrace/e2e/rig"
)

// textFrame encodes a short text without zero bytes as docs/e2a-runtime.md says.
func textFrame(s string) []byte {
	return append(append([]byte{byte(len(s) + 2), 1}, s...), 0)
}

// runsConversations tests the runtime of conversations as a gateway starts it (E-010, E-201, E-202, E-230,
// E-324, E-332): by the sandbox's own user, with its configuration in memory.
func runsConversations(t *testing.T, a *rig.API, box string, mounts bool) {
	t.Helper()
	const program, role = "/proc/self/exe", "e2a-runtime"
	request := func(args []string, key string) map[string]any {
		s := spec(program, args, "stdin", true)
		s["process"].(map[string]any)["envs"] = map[string]string{"E2A_SECRET_LLM_API_KEY": key, "E2A_SECRET_SESSION_ID": "of a bundle", "E2A_PLATFORM_SESSION_ID": "ses_1"}
		return s
	}
	r := a.StartSpec(t, box, request([]string{role}, "one"))
	pid := r.Started(t).Event.Start.PID
	text := func(s string) { a.RPC(t, box, "/process.Process/SendInput", byPID(pid, "input", stdin(textFrame(s)))) }
	until(t, r, `{"ready":{"port":`)
	text("an { echo")
	until(t, r, "\x01an { echo\x00")
	text(`{"type":"exec","command":"echo $LLM_API_KEY $SESSION_ID; cd /app/config 2>/dev/null && stat -c %a . *; exit 4"}`)
	got := until(t, r, `{"type":"exit","exit_code":4}`)
	if !strings.Contains(got, `one ses_1\n`) || mounts && !strings.Contains(got, `700\n600\n`) {
		t.Errorf("got %q", got)
	}
	update := a.StartSpec(t, box, request([]string{role, "config", "2", "1", "1"}, "two"))
	if end, _ := restOf(t, update, func(b []byte) { t.Errorf("%s", b) }); end == nil || end.ExitCode != 0 {
		t.Fatalf("the update ended with %+v", end)
	}
	text(`{"type":"exec","command":"echo $LLM_API_KEY"}`)
	until(t, r, `two\n`)
	a.RPC(t, box, "/process.Process/CloseStdin", byPID(pid))
	if end, why := restOf(t, r, func([]byte) {}); end == nil || end.ExitCode != 0 {
		t.Errorf("the runtime ended with %+v: %s", end, why)
	}
}
