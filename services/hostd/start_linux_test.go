package hostd

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/millrace/millrace/events/process"
	"github.com/millrace/millrace/services/hostd/internal/spawn/spawntest"
)

// A process whose start no run has seen, and whose shim is gone, gets an end: its command is read
// again until its record has more than the claim.
func TestUnseenStartGetsAnEndAfterTwoRuns(t *testing.T) {
	r := newRig(t)
	r.begin()
	sbx := r.sandbox()
	path := filepath.Join(t.TempDir(), "script")
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	spawntest.Lease(t, path)
	id := r.start(sbx, process.Spec{Cmd: path})
	r.read(id, func(rec *processRecord) bool { return len(rec.events) > 0 })
	r.file(sbx, "/etc/passwd") // the shim receives it after the start
	for range 2 {
		r.kill()
		r.begin()
		r.file(sbx, "/etc/passwd")
	}
	r.kill()
	r.killShim(sbx)
	r.begin()
	if end := describe(r.whole(id).end()); end != "not_started" && end != "shim_lost" { // the shim may list it once more while it dies
		t.Errorf("the process ended as %s", end)
	}
}
