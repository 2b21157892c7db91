package shim_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/millrace/millrace/events/process"
)

// TestEarlierOOMKillIsNotAttributed: an OOM kill counted before a process began hit
// something without a record, not the process.
func TestEarlierOOMKillIsNotAttributed(t *testing.T) {
	counts, err := os.Create(filepath.Join(t.TempDir(), "memory.events"))
	if err != nil {
		t.Fatal(err)
	}
	defer counts.Close()
	count := func(kills string) {
		if _, err := counts.WriteAt([]byte("oom_kill "+kills+"\n"), 0); err != nil {
			t.Fatal(err)
		}
	}
	count("0")
	socket, _ := startShimAs(t, func(c *exec.Cmd) { c.ExtraFiles = append(c.ExtraFiles, counts) }, "-oom-fd", "4")
	h := newHost(t, socket)
	h.connect()
	count("1")
	if p := h.awaitEnd(h.start(sh("kill -9 $$"))); describe(p.end) != "signaled by 9" {
		t.Errorf("after an earlier kill: %s", describe(p.end))
	}
	token := h.start(process.Spec{Cmd: "sh", Args: []string{"-c", "echo ready; read x; kill -9 $$"}, Stdin: true})
	h.awaitOutput(token, "ready")
	count("2")
	h.stdin(token, "\n", false)
	if p := h.awaitEnd(token); describe(p.end) != "oom by 9" {
		t.Errorf("after its own kill: %s", describe(p.end))
	}
}
