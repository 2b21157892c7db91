package e2e_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/e2e/rig"
)

// TestRecording has processes print secrets that must not be kept, kills the host, and searches the
// files of all services for the secrets.
func TestRecording(t *testing.T) {
	t.Parallel()
	s := rig.NewSplit(t, rig.Topology{Gateways: 2})
	n := notKept{canaries: newCanaries(), s: s, a: s.APIs[0], far: s.APIs[1]}
	t.Run("meta in a sandbox", func(t *testing.T) { n.output(t, "meta", n.a.Create(t, "record", "meta").ID) })
	t.Run("none in a sandbox", func(t *testing.T) { n.output(t, "none", n.a.Create(t, "record", "none").ID) })
	t.Run("none in the metadata", func(t *testing.T) {
		n.output(t, "none", n.a.Create(t, "metadata", map[string]string{"millrace.record": "none"}).ID)
	})
	t.Run("none in a start, which is stricter", func(t *testing.T) {
		n.output(t, "none", n.a.Create(t, "record", "meta").ID, "record", "none")
	})
	t.Run("full in a start, which is not", func(t *testing.T) {
		n.output(t, "meta", n.a.Create(t, "record", "meta").ID, "record", "full")
	})
	t.Run("patterns", n.patterns)
	t.Run("invalid settings", func(t *testing.T) {
		for _, body := range []map[string]any{{"record": "some"}, {"redact": []string{"a("}}, {"redact": []string{"^a"}}, {"redact": []string{"a*"}}} {
			body["templateID"] = "base"
			n.a.Want(t, http.StatusBadRequest, http.MethodPost, "/sandboxes", body)
		}
		n.a.Want(t, http.StatusBadRequest, http.MethodPost, "/commands", map[string]any{"cmd": "true", "record": "some"}, "E2b-Sandbox-Id", n.a.Create(t).ID)
	})
	if files := n.scan(t, s.Dir); files < 10 {
		t.Errorf("only %d files were searched", files)
	}
}

type notKept struct {
	*canaries
	s      *rig.Split
	a, far *rig.API
}

// script prints a secret, which is not in its text, twice: when $HOME/go-1 and when $HOME/go-2 exists.
func script(secret, comment string) string {
	half := len(secret) / 2
	step := func(i int) string {
		return fmt.Sprintf("while [ ! -e $HOME/go-%d ]; do sleep 0.05; done; printf %%s '%s'; sleep 0.2; printf '%%s\\n' '%s'\n", i, secret[:half], secret[half:])
	}
	return step(1) + step(2) + "exit 3 # " + comment
}

// output runs a process of which record is kept, and kills its host between its two secrets.
func (n *notKept) output(t *testing.T, record, box string, fields ...any) {
	secret, comment := n.next(), ""
	if record == "none" {
		comment = secret
	}
	first := n.a.Commands(t, box, script(secret, comment), append(fields, "timeout_ms", 0, "env", map[string]string{"SECRET": secret})...)
	id := first.Must(t).Process
	watched := n.far.Events(t, id, "follow=1")
	watched.Until(t, func(l *rig.Line) bool { return l.Type == "start" })
	touch := func(i int) { n.a.Commands(t, box, fmt.Sprintf("touch $HOME/go-%d", i), "record", "none").All(t) }
	touch(1)
	before := watched.Until(t, func(l *rig.Line) bool { return strings.HasSuffix(string(l.Bytes()), "\n") })
	host := n.s.Program(n.s.HostOf(t, n.a, box))
	host.Kill9()
	if err := host.Restart(); err != nil {
		t.Fatal(err)
	}
	if !rig.Poll(30*time.Second, func() bool { return n.a.AliveHosts() == 1 }) {
		t.Fatal("the host did not restart")
	}
	touch(2)
	for name, got := range map[string][]*rig.Line{"the starter": first.All(t), "a watcher on another gateway": append(before, watched.All(t)...)} {
		if out := rig.Output(got, "stdout"); out != secret+"\n"+secret+"\n" {
			t.Errorf("%s has %d bytes of output, want %d", name, len(out), 2*len(secret)+2)
		}
	}
	omitted, lines := false, n.far.Events(t, id, "").All(t)
	for i, l := range lines {
		omitted = omitted || l.Type == "omitted"
		if l.Seq != uint64(i+1) || l.IsOutput() || n.in([]byte(l.Raw)) {
			t.Errorf("event %d of the record: %s", i+1, l.Raw)
		}
	}
	if end := rig.End(t, lines); !omitted || end.ExitCode == nil || *end.ExitCode != 3 {
		t.Errorf("omitted %v, end: %s", omitted, end.Raw)
	}
	if kept := strings.Contains(lines[0].Raw, "exit 3"); kept != (record == "meta") {
		t.Errorf("the first event: %s", lines[0].Raw)
	}
}

// patterns replaces secrets in output, also across writes, and in the command.
func (n *notKept) patterns(t *testing.T) {
	box := n.a.Create(t, "redact", []string{n.prefix + "-[0-9]{4}"}).ID
	n.a.Commands(t, box, "touch $HOME/go-1 $HOME/go-2").All(t)
	secret := n.next()
	first := n.a.Commands(t, box, script(secret, secret), "env", map[string]string{"SECRET": secret})
	id := first.Must(t).Process
	for name, got := range map[string][]*rig.Line{"the starter": first.All(t), "the record": n.far.Events(t, id, "").All(t)} {
		if out := rig.Output(got, "stdout"); out != "[redacted]\n[redacted]\n" {
			t.Errorf("%s: %q", name, out)
		}
		for _, l := range got {
			if n.in([]byte(l.Raw)) {
				t.Errorf("%s has the secret", name)
			}
		}
	}
}
