package e2e_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/e2e/rig"
)

// keysTimeout bounds each step of a rotation.
const keysTimeout = time.Minute

// rotation is a topology whose keys are replaced.
type rotation struct {
	*testing.T
	s     *rig.Split
	file  string // of the master key
	pairs []*backend
}

// keyringState is the state of the keys.
type keyringState struct {
	Master   string `json:"master_key"`
	DataKeys []struct {
		Number uint32 `json:"number"`
		UsedBy string `json:"used_by"`
	} `json:"data_keys"`
	Resealed uint64 `json:"resealed"`
	Left     uint64 `json:"left"`
	Sealed   bool   `json:"sealed"`
	Changes  []struct {
		Type string `json:"type"`
	} `json:"changes"`
}

func (k *keyringState) current() uint32 { return k.DataKeys[len(k.DataKeys)-1].Number }

// state returns the state from the first gateway that responds.
func (r *rotation) state() (k keyringState) {
	r.Helper()
	ans, err := rig.Try(r.s.APIs, keysTimeout, "GET", "/v1/keyring", nil)
	if err != nil || ans.Status != 200 || json.Unmarshal(ans.Body, &k) != nil || len(k.DataKeys) == 0 {
		r.Fatalf("keyring: %v, %v", ans, err)
	}
	return k
}

// store stores a key pair and a secret through a gateway.
func (r *rotation) store(a *rig.API) {
	r.Helper()
	var made struct{ AccessKey, SecretKey string }
	name := fmt.Sprint("pair-", len(r.pairs))
	a.Want(r, http.StatusCreated, "POST", "/api-keys", map[string]any{"name": name, "pair": true}).Decode(r, &made)
	r.pairs = append(r.pairs, &backend{r, nil, made.AccessKey, made.SecretKey})
	a.Want(r, http.StatusCreated, "POST", "/secrets", map[string]string{"name": name, "value": "canary-of-" + name})
}

// check signs a request with each key pair: a gateway can check it only if it can open the secret
// key.
func (r *rotation) check() {
	r.Helper()
	for _, a := range r.s.APIs {
		for i, p := range r.pairs {
			p.a = a
			p.call(http.StatusNotFound, "GET", "/session/none", "", nil)
			if i == 0 {
				damaged := *p
				damaged.secret = "x" + p.secret
				damaged.call(http.StatusUnauthorized, "GET", "/session/none", "", nil)
			}
		}
	}
}

// until repeats a request at one gateway after the other until it succeeds.
func (r *rotation) until(path string, body any) {
	r.Helper()
	var ans rig.Answer
	turn := 0
	if !rig.Poll(keysTimeout, func() bool {
		a := r.s.APIs[turn%len(r.s.APIs)]
		turn++
		var err error
		ans, err = a.Call("POST", path, body)
		return err == nil && ans.Status == 200
	}) {
		r.Fatalf("POST %s: %v", path, ans)
	}
}

// cutOff sends a request to the first gateway, which is killed meanwhile, and restarts it.
func (r *rotation) cutOff(path string, body any) {
	r.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		r.s.APIs[0].Call("POST", path, body) // its answer is lost
	}()
	r.s.Program("gateway-1").Kill9()
	<-done
	must(r.T, r.s.RestartProgram("gateway-1"))
}

// read returns the keys in the file of the master key.
func (r *rotation) read() []string {
	r.Helper()
	text, err := os.ReadFile(r.file)
	must(r.T, err)
	return strings.Fields(string(text))
}

// write replaces the file of the master key.
func (r *rotation) write(key string) {
	r.Helper()
	tmp := r.file + ".tmp"
	must(r.T, os.WriteFile(tmp, []byte(key), 0o600))
	must(r.T, os.Rename(tmp, r.file))
}

// restartAll kills all services that have the master key and restarts them.
func (r *rotation) restartAll() {
	r.Helper()
	for _, name := range []string{"gateway-1", "gateway-2", "reaper-1", "reaper-2"} {
		r.s.Program(name).Kill9()
	}
	must(r.T, r.s.RestartAll())
}

// keyring runs the command on the machine of all services.
func (r *rotation) keyring(args ...string) (string, error) {
	cmd := exec.CommandContext(r.Context(), rig.Binary(r), append([]string{"keyring"}, args...)...)
	cmd.Env = []string{"HOME=" + r.s.Dir, "MILLRACE_URL=" + r.s.APIs[1].URL, "MILLRACE_API_KEY=" + rig.SplitKey}
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// Both keys are replaced while a service is killed at each step. All values open all the time, and
// neither replaced key remains.
func TestKeysAreReplacedWhateverIsKilled(t *testing.T) {
	t.Parallel()
	s := rig.NewSplit(t, rig.Topology{Gateways: 2, Reapers: 2, Env: []string{"MILLRACE_DATA_KEY_GRACE=7s"}})
	r := &rotation{T: t, s: s, file: filepath.Join(s.Dir, ".config", "millrace", "master.key")}
	for i := range 12 {
		r.store(s.APIs[i%2])
	}
	r.check()
	first := r.state()

	// The data key, the gateway killed.
	replace := map[string]any{"replaces": first.current()}
	r.cutOff("/v1/keyring/data", replace)
	r.until("/v1/keyring/data", replace)
	if k := r.state(); k.current() != first.current()+1 {
		t.Fatalf("two rotations were made: %+v", k)
	}
	r.store(s.APIs[1])
	r.check()

	// The reapers killed while they seal values again, and after that.
	for _, name := range []string{"reaper-1", "reaper-2"} {
		_, err := s.Crash(name)
		must(t, err)
	}
	if !rig.Poll(keysTimeout, func() bool { k := r.state(); return k.Sealed }) {
		t.Fatalf("values are not sealed again: %+v", r.state())
	}
	_, err := s.Crash("reaper-2")
	must(t, err)
	r.check()

	// The master key, the gateway killed.
	old := r.read()[0]
	if out, err := r.keyring("new-master"); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	fresh := r.read()[0]
	if out, err := r.keyring("drop-master"); err == nil || !strings.Contains(out, "rotate-master first") {
		t.Errorf("the old key was removed too early: %v: %s", err, out)
	}
	r.cutOff("/v1/keyring/master", map[string]any{"force": false})
	var out string
	if !rig.Poll(keysTimeout, func() bool { out, err = r.keyring("rotate-master"); return err == nil }) {
		t.Fatalf("the master key is not replaced: %s", out)
	}
	rotated := r.state()
	if rotated.Master == first.Master {
		t.Fatal("the master key is the same")
	}
	r.check()
	if out, err := r.keyring("drop-master"); err != nil || !slices.Equal(r.read(), []string{fresh}) {
		t.Fatalf("the old key is left: %v: %s", err, out)
	}
	r.restartAll()
	r.store(s.APIs[0])
	r.check()

	// The replaced data key goes.
	if !rig.Poll(keysTimeout, func() bool { return len(r.state().DataKeys) == 1 }) {
		t.Fatalf("the replaced data key remains: %+v", r.state())
	}
	r.restartAll()
	r.check()
	if out, err := r.keyring("ls"); err != nil || !strings.Contains(out, "current") || !strings.Contains(out, "reaper on ") || !strings.Contains(out, "data key removed 1") {
		t.Errorf("%v: %s", err, out)
	}
	if k := r.state(); k.Master != rotated.Master || len(k.Changes) != 4 {
		t.Errorf("%+v", k)
	}

	// The replaced master key does not open the store.
	r.write(old)
	p := s.Program("gateway-2")
	p.Kill9()
	must(t, p.Restart())
	select {
	case <-p.Done():
	case <-time.After(keysTimeout):
		t.Error("a gateway serves with the replaced master key")
	}
	if log := p.Log(); !strings.Contains(log, "wrong master key") {
		t.Errorf("its log does not say why:\n%s", log)
	}
	r.write(fresh)
	must(t, s.RestartProgram("gateway-2"))
	r.check()

	// Nothing is in clear on the disk.
	for _, p := range r.pairs {
		must(t, grepTree(filepath.Join(s.Dir, "nats-1"), p.secret))
	}
	must(t, grepTree(filepath.Join(s.Dir, "nats-1"), "canary-of-"))
	must(t, grepTree(filepath.Join(s.Dir, "nats-1"), fresh))
}
