package hostd

import (
	"encoding/json"
	"os"
	"path/filepath"

	"github.com/millrace/millrace/events/command"
	"github.com/millrace/millrace/events/eventstest"
	"github.com/millrace/millrace/events/process"
	"github.com/millrace/millrace/events/sandbox"
)

// request creates a sandbox's record and places it.
func (r *rig) request(req sandbox.Requested) sandbox.ID {
	r.t.Helper()
	id := sandbox.NewID()
	var err error
	if req.Defaults, err = req.Defaults.Seal(eventstest.Ring(r.t, r.log), tenant, string(id)); err != nil {
		r.t.Fatal(err)
	}
	if _, err := r.view.CreateSandbox(r.ctx(), tenant, id, req); err != nil {
		r.t.Fatal(err)
	}
	_, err = r.view.ChangeSandbox(r.ctx(), id, func(sandbox.State) ([]sandbox.Body, error) {
		return []sandbox.Body{sandbox.Placed{Host: r.cfg.Name, Epoch: 1}}, nil
	})
	if err != nil {
		r.t.Fatal(err)
	}
	return id
}

func (r *rig) awaitPhase(id sandbox.ID, phases ...sandbox.Phase) sandbox.State {
	r.t.Helper()
	s, err := r.view.AwaitSandbox(r.ctx(), id, func(s *sandbox.State) bool {
		for _, p := range phases {
			if s.Phase == p {
				return true
			}
		}
		return s.Over()
	})
	if err != nil {
		r.t.Fatalf("sandbox in phase %q, want %q: %v", s.Phase, phases, err)
	}
	return s
}

func (r *rig) sandbox() sandbox.ID {
	r.t.Helper()
	id := r.request(sandbox.Requested{Template: "base", Defaults: sandbox.Defaults{Env: map[string]string{"OF": "sandbox"}}})
	if s := r.awaitPhase(id, sandbox.PhaseRunning); !s.IsRunning() {
		r.t.Fatalf("sandbox %q: %s", s.Phase, s.Cause)
	}
	return id
}

func (r *rig) stopSandbox(id sandbox.ID) {
	r.t.Helper()
	_, err := r.view.ChangeSandbox(r.ctx(), id, func(s sandbox.State) ([]sandbox.Body, error) {
		if s.Over() || s.Phase == sandbox.PhaseStopping {
			return nil, nil
		}
		return []sandbox.Body{sandbox.Stopping{Cause: sandbox.CauseUser}}, nil
	})
	if err != nil {
		r.t.Fatal(err)
	}
}

func (r *rig) send(id process.ID, body command.Body) {
	r.t.Helper()
	if s, ok := body.(command.Start); ok {
		sealed, err := s.Spec.Seal(eventstest.Ring(r.t, r.log), tenant, id)
		if err != nil {
			r.t.Fatal(err)
		}
		body = command.Start{Spec: sealed}
	}
	if err := r.log.Send(r.ctx(), r.cfg.Name, newCommand(id, body)); err != nil {
		r.t.Fatal(err)
	}
}

func newCommand(id process.ID, body command.Body) command.Command {
	return command.Command{ID: string(process.NewID(id.Sandbox())), Tenant: tenant, Process: id, Body: body}
}

func (r *rig) call(id process.ID, body command.Body) (command.Reply, error) {
	return r.log.Call(r.ctx(), r.cfg.Name, newCommand(id, body))
}

func (r *rig) start(sbx sandbox.ID, spec process.Spec) process.ID {
	r.t.Helper()
	id := process.NewID(sbx)
	r.send(id, command.Start{Spec: spec})
	return id
}

func sh(script string) process.Spec {
	return process.Spec{Cmd: "/bin/sh", Args: []string{"-c", script}}
}

// file reads a file in the home directory of a sandbox's user.
func (r *rig) file(sbx sandbox.ID, name string) string {
	r.t.Helper()
	rec := r.whole(r.start(sbx, sh("cd; cat "+name)))
	if end := describe(rec.end()); end != "exited 0" {
		r.t.Fatalf("read %s: %s", name, end)
	}
	return string(rec.out[process.Stdout])
}

// killShim kills a sandbox's shim.
func (r *rig) killShim(sbx sandbox.ID) {
	r.t.Helper()
	b, err := os.ReadFile(filepath.Join(r.cfg.DataDir, sandboxDir, string(sbx), "state.json"))
	if err != nil {
		r.t.Fatal(err)
	}
	var state struct{ PID int }
	if err := json.Unmarshal(b, &state); err != nil || state.PID == 0 {
		r.t.Fatalf("%s: %v", b, err)
	}
	shim, err := os.FindProcess(state.PID)
	if err != nil {
		r.t.Fatal(err)
	}
	if err := shim.Kill(); err != nil {
		r.t.Fatal(err)
	}
}
