package e2e_test

import (
	"encoding/json"
	"maps"
	"math/rand/v2"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fasthttp/websocket"

	"github.com/millrace/millrace/e2e/rig"
)

// resumeAll sends resumes of a conversation to all gateways at once, and again while they are not available.
// It returns the result, which all have.
func resumeAll(t *testing.T, s *rig.Split, id string, requests int) conversation {
	t.Helper()
	var wg sync.WaitGroup
	var mu sync.Mutex
	results := make(map[conversation]int)
	for i := range requests {
		wg.Go(func() {
			apis := []*rig.API{s.APIs[i%len(s.APIs)], s.APIs[(i+1)%len(s.APIs)]}
			ans, err := rig.Try(apis, progressTimeout, http.MethodPost, "/v1/sessions/resume", json.RawMessage(resumption(id)), "Authorization", "Bearer "+s.APIs[0].Key)
			var c conversation
			if err == nil && ans.Status == http.StatusOK {
				err = json.Unmarshal(ans.Body, &c)
			}
			if err != nil || ans.Status != http.StatusOK {
				t.Errorf("resume: %v, %v", ans, err)
				return
			}
			mu.Lock()
			defer mu.Unlock()
			results[c]++
		})
	}
	wg.Wait()
	all := slices.Collect(maps.Keys(results))
	if len(all) != 1 {
		t.Fatalf("%d results: %v", len(all), all)
	}
	return all[0]
}

// sandboxOf returns the sandbox of a conversation.
func sandboxOf(c *conversation) string { return strings.TrimPrefix(c.VM, "sbx_") }

// E-170, E-188: the host of a conversation dies for good. Of many resumes one creates a sandbox on the other
// host, from the copy of the files.
func TestE2AHostDies(t *testing.T) {
	t.Parallel()
	s := newTopology(t, rig.Topology{Gateways: 2, Hosts: 2, HostArgs: []string{"--log-level", "debug"}})
	c := converse(t, s.APIs[0], "/v1/sessions", conversationBody, 201)
	host := s.HostOf(t, s.APIs[0], sandboxOf(&c))
	k := talkTo(t, s.APIs[0], &c, "")
	if out := k.run("echo hello > greeting; cat greeting"); out != "hello\n" {
		t.Errorf("got %q", out)
	}
	k.ws.Close()
	if !rig.Poll(time.Minute, func() bool { return strings.Contains(s.Program(host).Log(), "snapshot copied") }) {
		t.Fatal("the files were not copied after the client left")
	}
	s.Program(host).Kill9()
	began := time.Now()
	next := resumeAll(t, s, c.ID, 20)
	t.Logf("resumed %v after the death", time.Since(began))
	if at := s.HostOf(t, s.APIs[1], sandboxOf(&next)); at == host {
		t.Errorf("resumed on %s, which is dead", at)
	}
	if out := talkTo(t, s.APIs[1], &next, "").run("cat greeting"); out != "hello\n" {
		t.Errorf("after a resume: %q", out)
	}
	must(t, s.RestartProgram(host))
	must(t, s.Settled(2))
}

// NATS restarts during many resumes: each conversation has one sandbox and one result, and its files.
func TestE2AResumesWhileNATSRestarts(t *testing.T) {
	t.Parallel()
	s := newTopology(t, rig.Topology{Gateways: 2})
	all := make([]conversation, 4)
	for i := range all {
		all[i] = converse(t, s.APIs[i%2], "/v1/sessions", conversationBody, 201)
		k := talkTo(t, s.APIs[i%2], &all[i], "")
		k.run("echo " + all[i].ID + " > id")
		k.ws.Close()
	}
	var wg sync.WaitGroup
	next := make([]conversation, len(all))
	for i := range all {
		wg.Go(func() { next[i] = resumeAll(t, s, all[i].ID, 8) })
	}
	_, err := s.Crash("nats-1")
	must(t, err)
	wg.Wait()
	for i := range next {
		if next[i].VM == all[i].VM {
			t.Errorf("not resumed: %+v", next[i])
			continue
		}
		if out := talkTo(t, s.APIs[i%2], &next[i], "").run("cat id"); out != all[i].ID+"\n" {
			t.Errorf("the file of %s is %q", all[i].ID, out)
		}
	}
	var running int
	for _, box := range runningIDs(t, s.APIs[0]) {
		if slices.ContainsFunc(next, func(c conversation) bool { return sandboxOf(&c) == box }) {
			running++
		} else {
			t.Errorf("%s is left", box)
		}
	}
	if running != len(next) {
		t.Errorf("%d of %d sandboxes run", running, len(next))
	}
}

// runningIDs returns the running sandboxes.
func runningIDs(t *testing.T, a *rig.API) (ids []string) {
	t.Helper()
	var all []struct{ SandboxID string }
	a.Want(t, http.StatusOK, http.MethodGet, "/v2/sandboxes?state=running", nil).Decode(t, &all)
	for _, s := range all {
		ids = append(ids, s.SandboxID)
	}
	return ids
}

// E-205, E-206, E-249: a connection gets a ping every 30 s, one warning 10 s before the end of its sandbox, and
// the end.
func TestE2APingsAndWarning(t *testing.T) {
	t.Parallel()
	u := sharedUp(t)
	pings, ttl := 1, "42"
	if os.Getenv(EnvSoak) != "" {
		pings, ttl = 2, "72"
	}
	c := converse(t, u.API, "/v1/sessions", strings.Replace(conversationBody, "{", `{"ttl_seconds":`+ttl+`,`, 1), 201)
	began := time.Now()
	k := talkTo(t, u.API, &c, "")
	k.ws.SetReadDeadline(time.Now().Add(2 * time.Minute))
	at := []time.Time{began}
	k.ws.SetPingHandler(func(data string) error {
		at = append(at, time.Now())
		return k.ws.WriteControl(websocket.PongMessage, []byte(data), time.Now().Add(time.Minute))
	})
	var warnings []time.Time
	for {
		f, err := k.read()
		if err != nil {
			if !websocket.IsCloseError(err, websocket.CloseGoingAway) || !strings.Contains(err.Error(), "sandbox destroyed") {
				t.Errorf("closed with %v", err)
			}
			break
		}
		if f.Event != "cancel" {
			t.Errorf("got %+v", f)
		}
		warnings = append(warnings, time.Now())
	}
	if len(warnings) != 1 {
		t.Fatalf("%d warnings", len(warnings))
	}
	if left := time.Since(warnings[0]); left < 5*time.Second || left > 22*time.Second { // a reaper may be 10 s late with the end
		t.Errorf("warned %v before the end", left)
	}
	if len(at) != pings+1 {
		t.Fatalf("%d pings, want %d", len(at)-1, pings)
	}
	for i := range pings {
		if d := at[i+1].Sub(at[i]); d < 28*time.Second || d > 34*time.Second {
			t.Errorf("ping %d after %v", i+1, d)
		}
	}
}

// Every role is killed at random moments of creates, resumes and deletes: each request succeeds when it is
// repeated, and a conversation has its files and one sandbox.
func TestE2AKilledRoles(t *testing.T) {
	t.Parallel()
	s := newTopology(t, rig.Topology{Gateways: 2})
	bearer := []string{"Authorization", "Bearer " + s.APIs[0].Key}
	rounds := 3
	if os.Getenv(EnvSoak) != "" {
		rounds = 30
	}
	for i := range rounds {
		for _, role := range []string{"host-1", "scheduler-1", "reaper-1", "gateway-1"} {
			during := func(what string, statuses []int, do func() (rig.Answer, error)) (ans rig.Answer) {
				t.Helper()
				done := make(chan error, 1)
				go func() {
					var err error
					ans, err = do()
					done <- err
				}()
				<-time.After(time.Duration(rand.IntN(200)) * time.Millisecond)
				_, err := s.Crash(role)
				must(t, err)
				if err := <-done; err != nil || !slices.Contains(statuses, ans.Status) {
					t.Fatalf("%s, %s %d: %v, %v", what, role, i, ans, err)
				}
				return ans
			}
			try := func(apis []*rig.API, method, path, body string) func() (rig.Answer, error) {
				return func() (rig.Answer, error) {
					return rig.Try(apis, progressTimeout, method, path, json.RawMessage(body), bearer...)
				}
			}
			var c, next conversation
			during("create", []int{201}, try(s.APIs, "POST", "/v1/sessions", conversationBody)).Decode(t, &c)
			must(t, s.Settled(1))
			k := talkTo(t, s.APIs[1], &c, "")
			k.run("echo " + c.ID + " > id")
			k.ws.Close()
			during("resume", []int{200}, try(s.APIs, "POST", "/v1/sessions/resume", resumption(c.ID))).Decode(t, &next)
			must(t, s.Settled(1))
			out := talkTo(t, s.APIs[1], &next, "").run("cat id")
			// A slow machine may restart the host after its lease has ended: what was not copied is lost with it.
			lost := slices.ContainsFunc(history(t, s.APIs[1], sandboxOf(&c)), func(e change) bool { return e.Type == "lost" })
			if out != c.ID+"\n" && !lost {
				t.Errorf("%s %d: the file is %q", role, i, out)
			}
			during("delete", []int{200, 404}, try(s.APIs, "DELETE", "/v1/sandboxes/"+next.VM, "null"))
			for _, box := range runningIDs(t, s.APIs[1]) {
				if box == sandboxOf(&c) || box == sandboxOf(&next) {
					t.Errorf("%s %d: %s still runs", role, i, box)
				}
			}
		}
	}
}
