package e2e_test

import (
	"fmt"
	"net/http"
	"os/exec"
	"strings"
	"sync"
	"testing"

	"github.com/millrace/millrace/e2e/rig"
)

// Of a thousand creates for a host with a capacity of one, one succeeds. All others wait for
// the queue timeout and fail with 503, which E2B's clients report as busy.
func TestThousandCreatesForOneSlot(t *testing.T) {
	u := rig.NewUp(t, rig.Options{Args: []string{"--capacity", "1", "--queue-timeout", "100ms"}})
	const wanted, atOnce = 1000, 100
	var mu sync.Mutex
	codes := map[int]int{}
	var winner string
	var wg sync.WaitGroup
	slots := make(chan struct{}, atOnce)
	for range wanted {
		wg.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			ans, err := u.Call(http.MethodPost, "/sandboxes", map[string]any{"templateID": "base", "timeout": 300})
			if err != nil {
				t.Errorf("create: %v", err)
				return
			}
			mu.Lock()
			defer mu.Unlock()
			if codes[ans.Status]++; ans.Status == http.StatusCreated {
				var s rig.Sandbox
				ans.Decode(t, &s)
				winner = s.ID
			}
		})
	}
	wg.Wait()
	if codes[http.StatusCreated] != 1 || codes[http.StatusServiceUnavailable] != wanted-1 {
		t.Errorf("%d creates have the statuses %v; want one 201, all others 503", wanted, codes)
	}
	u.Kill(t, winner)
	u.Create(t) // there is capacity again
}

// A sandbox has at least the requested isolation, or the create fails.
func TestIsolationDemanded(t *testing.T) {
	t.Parallel()
	a := api(t)
	var d struct {
		Isolation string `json:"isolation"`
	}
	a.Want(t, http.StatusOK, http.MethodGet, "/sandboxes/"+a.Create(t).ID, nil).Decode(t, &d)
	levels := []string{"none", "process", "kernel", "machine"}
	enough := true
	for _, level := range levels {
		ans := a.Do(t, http.MethodPost, "/sandboxes", map[string]any{"templateID": "base", "timeout": 60, "isolation": level})
		want := http.StatusCreated
		if !enough {
			want = http.StatusServiceUnavailable
			inMetadata := map[string]any{"templateID": "base", "timeout": 60, "metadata": map[string]string{"millrace.isolation": level}}
			a.Want(t, want, http.MethodPost, "/sandboxes", inMetadata)
		}
		if ans.Status != want {
			t.Errorf("isolation %s on a host with %s: %v, want %d", level, d.Isolation, ans, want)
		}
		if ans.Status == http.StatusCreated {
			var s rig.Sandbox
			ans.Decode(t, &s)
			a.Kill(t, s.ID)
		}
		enough = enough && level != d.Isolation
	}
}

// A paused sandbox survives a kill and restart of `up`.
func TestPausedSandboxSurvivesKill(t *testing.T) {
	t.Parallel()
	u := rig.NewUp(t, rig.Options{})
	box := u.Create(t)
	id := u.Commands(t, box.ID, "for i in $(seq 1 200); do echo $i; sleep 0.02; done").Must(t).Process
	u.Want(t, http.StatusNoContent, http.MethodPost, "/sandboxes/"+box.ID+"/pause", nil)
	u.Kill9()
	if err := u.Restart(); err != nil {
		t.Fatal(err)
	}
	var d struct {
		State string `json:"state"`
	}
	u.Want(t, http.StatusOK, http.MethodGet, "/sandboxes/"+box.ID, nil).Decode(t, &d)
	if d.State != "paused" {
		t.Errorf("after a kill it is %s", d.State)
	}
	u.Want(t, http.StatusCreated, http.MethodPost, "/sandboxes/"+box.ID+"/connect", map[string]int{"timeout": 300})
	var want strings.Builder
	for i := range 200 {
		fmt.Fprintf(&want, "%d\n", i+1)
	}
	var got strings.Builder
	for _, l := range u.Events(t, id, "").All(t) {
		if l.Data != nil {
			got.WriteString(*l.Data)
		}
	}
	if got.String() != want.String() {
		t.Errorf("%d bytes of output, want %d: %.40q", got.Len(), want.Len(), got.String())
	}
}

// A draining host accepts no new sandboxes, and its sandboxes keep running.
func TestDrainHost(t *testing.T) {
	t.Parallel()
	u := rig.NewUp(t, rig.Options{})
	box := u.Create(t)
	cli(t, u.API, "host", "drain", "local")
	u.Want(t, http.StatusServiceUnavailable, http.MethodPost, "/sandboxes", map[string]any{"templateID": "base"})
	if end := rig.End(t, u.Commands(t, box.ID, "echo goes on").All(t)); end.ExitCode == nil || *end.ExitCode != 0 {
		t.Errorf("in a sandbox of a draining host: %s", end.Raw)
	}
	cli(t, u.API, "host", "undrain", "local")
	u.Create(t)
}

// cli runs a client command against a gateway and returns its output.
func cli(t *testing.T, a *rig.API, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), rig.Binary(t), args...)
	cmd.Env = []string{"HOME=" + t.TempDir(), "MILLRACE_URL=" + a.URL, "MILLRACE_API_KEY=" + a.Key}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("millrace %s: %v: %s", strings.Join(args, " "), err, out)
	}
	return strings.TrimSpace(string(out))
}

// The commands for pauses, snapshots and forks work.
func TestLifecycleByCLI(t *testing.T) {
	t.Parallel()
	a := api(t)
	box := a.Create(t)
	run := func(sbx, cmd string) string { return cli(t, a, "run", "--sandbox", sbx, cmd) }
	run(box.ID, "echo then > ~/file")
	cli(t, a, "sandbox", "pause", box.ID)
	snap := cli(t, a, "sandbox", "snapshot", box.ID, "--name", "cli-"+box.ID)
	cli(t, a, "sandbox", "resume", box.ID)
	run(box.ID, "echo now > ~/file")
	first := cli(t, a, "sandbox", "create", "--template", snap)
	second := cli(t, a, "sandbox", "fork", box.ID)
	for sbx, want := range map[string]string{box.ID: "now", first: "then", second: "now"} {
		if got := run(sbx, "cat ~/file"); got != want {
			t.Errorf("the file of %s has %q, want %q", sbx, got, want)
		}
	}
	if got := cli(t, a, "snapshot", "ls"); !strings.Contains(got, snap) || !strings.Contains(got, "cli-"+box.ID+":default") {
		t.Errorf("snapshots:\n%s", got)
	}
	cli(t, a, "snapshot", "rm", snap)
	cli(t, a, "sandbox", "rm", first, second)
}
