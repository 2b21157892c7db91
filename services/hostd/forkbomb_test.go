//go:build linux

package hostd

import (
	"cmp"
	"fmt"
	"os"
	"slices"
	"testing"

	"github.com/millrace/millrace/events/command"
	"github.com/millrace/millrace/events/process"
	"github.com/millrace/millrace/events/sandbox"
)

// A fork bomb that uses up a sandbox's process limit, and the CPUs, stops neither its shim nor
// the output of the sandbox's other processes.
func TestForkBombLeavesOtherProcessesRunning(t *testing.T) {
	driver := cmp.Or(os.Getenv("MILLRACE_TEST_DRIVER"), "namespace")
	users := []string{""}
	if driver == "namespace" && os.Geteuid() == 0 {
		users = []string{"user", "root"}
	}
	for _, user := range users {
		t.Run(cmp.Or(user, "default user"), func(t *testing.T) {
			const printers, most = 4, 48
			r := newRigOn(t, driver)
			r.begin()
			sbx := r.request(sandbox.Requested{Template: "base", Resources: sandbox.Resources{PIDs: most}})
			if s := r.awaitPhase(sbx, sandbox.PhaseRunning); !s.IsRunning() {
				t.Fatalf("sandbox %q: %s", s.Phase, s.Cause)
			}
			var all []process.ID
			for i := range printers {
				all = append(all, r.start(sbx, sh(fmt.Sprintf("while :; do echo line of %d; n=0; while [ $n -lt 20000 ]; do n=$((n+1)); done; done", i))))
			}
			for _, id := range all {
				r.awaitOutput(id, "line of")
			}
			spinner := sh("while :; do :; done")
			spinner.User = user
			refused := 0
			for range 2 * most {
				id := r.start(sbx, spinner)
				rec := r.read(id, isStarted)
				if end := rec.end(); end == nil {
					all = append(all, id)
				} else if refused++; describe(end) != "not_started" {
					t.Errorf("process beyond the limit: %s", describe(end))
				}
			}
			if refused < most/2 {
				t.Errorf("%[2]d of %[1]d starts were refused", 2*most, refused)
			}
			for _, id := range all {
				r.send(id, command.Signal{Signal: 9})
				if end := describe(r.whole(id).end()); end != "killed by 9" {
					t.Errorf("process that ran: %s", end)
				}
			}
			if got := r.file(sbx, "/etc/hostname; echo alive"); got == "" {
				t.Error("the sandbox runs nothing any more")
			}
		})
	}
}

func isStarted(rec *processRecord) bool {
	return slices.ContainsFunc(rec.events, func(e process.Event) bool {
		_, is := e.Body.(process.Started)
		return is
	})
}
