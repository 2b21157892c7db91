package e2e_test

import (
	"net/http"
	"testing"

	"github.com/millrace/millrace/e2e/rig"
)

// A template built with one driver works with the other, whose builds reuse its layers.
func TestTemplatesWorkWithEveryDriver(t *testing.T) {
	t.Parallel()
	if !gvisorHere(t) {
		t.Skip("only one driver works here")
	}
	for _, c := range []struct{ built, then, level string }{
		{"namespace", "gvisor", "kernel"}, {"namespace", "namespace,gvisor", "kernel"}, {"gvisor", "namespace", "process"},
	} {
		t.Run(c.built+", then "+c.then, func(t *testing.T) {
			u := rig.NewUp(t, rig.Options{Driver: c.built})
			steps := []string{"echo step $(date +%s%N); mkdir -p /home/user/app && echo built > /home/user/app/file", "chmod 4711 /home/user/app/file"}
			first := startBuild(t, u.API, "mine", steps...)
			awaitBuild(t, u.API, first, "the build", func(s *buildState) bool { return s.Status == "ready" })
			if err := u.SwitchDrivers(c.then); err != nil {
				t.Fatal(err)
			}
			var box struct {
				Isolation string `json:"isolation"`
			}
			id := u.Create(t, "templateID", "mine", "isolation", c.level, "timeout", 600).ID
			u.Want(t, 200, "GET", "/sandboxes/"+id, nil).Decode(t, &box)
			if box.Isolation != c.level {
				t.Errorf("its isolation is %q, want %q", box.Isolation, c.level)
			}
			got := u.StartStream(t, id, "cd /home/user/app && cat file && stat -c '%a %U' file && echo more >> file && cat file").All(t).Stdout()
			if want := "built\n4711 user\nbuilt\nmore\n"; got != want {
				t.Errorf("in a sandbox of the other driver: %q, want %q", got, want)
			}
			again := startBuild(t, u.API, "another", steps...)
			if s := awaitBuild(t, u.API, again, "the build after", func(s *buildState) bool { return s.Status == "ready" }); s.count("step ") != 0 {
				t.Errorf("the other driver ran a step again: %+v", s)
			}
		})
	}
}

// A template can be built in a virtual machine, whose files are in memory: a sandbox from it
// has the files of the build's steps, a later build reuses all steps, and a sandbox that is
// paused without its memory keeps its files.
func TestTemplatesOfMachines(t *testing.T) {
	t.Parallel() // mostly it waits for an emulated CPU
	opt := rig.Options{Driver: "microvm", Args: []string{"--tcg"}}
	rig.SkipUnless(t, opt)
	u := rig.NewUp(t, opt)
	steps := []string{"mkdir -p /home/user/app/old && echo built > /home/user/app/file && ln /home/user/app/file /home/user/app/same", "chmod 4711 /home/user/app/file; rm -r /home/user/app/old"}
	first := startBuild(t, u.API, "mine", steps...)
	awaitBuild(t, u.API, first, "the build", func(s *buildState) bool { return s.Status == "ready" })
	box := u.Create(t, "templateID", "mine", "timeout", 600).ID
	var info struct{ CPUCount, MemoryMB int }
	u.Want(t, http.StatusOK, http.MethodGet, "/sandboxes/"+box, nil).Decode(t, &info)
	if info.CPUCount != 1 || info.MemoryMB != 512 {
		t.Errorf("without limits it has %+v", info)
	}
	const look = "cd /home/user/app && cat file same && stat -c '%a %h' file && echo more >> file; ls"
	if got, want := outputOf(u.Commands(t, box, look).All(t)), "built\nbuilt\n4711 2\nfile\nsame\n"; got != want {
		t.Errorf("in a sandbox made from it: %q, want %q", got, want)
	}
	again := startBuild(t, u.API, "another", steps...)
	if s := awaitBuild(t, u.API, again, "the build after", func(s *buildState) bool { return s.Status == "ready" }); s.count("step ") != 0 {
		t.Errorf("it ran a step again: %+v", s)
	}
	u.Want(t, http.StatusNoContent, http.MethodPost, "/sandboxes/"+box+"/pause", map[string]any{"memory": false})
	u.Want(t, http.StatusCreated, http.MethodPost, "/sandboxes/"+box+"/resume", map[string]any{"timeout": 600})
	if got := outputOf(u.Commands(t, box, "tail -n1 /home/user/app/same").All(t)); got != "more\n" {
		t.Errorf("after a pause: %q", got)
	}
}
