package e2e_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/millrace/millrace/e2e/rig"
)

// created is the result of a create.
type created struct {
	status int
	id     string
	code   string
	took   time.Duration
}

// create creates a sandbox; it fails the test without a response.
func create(t *testing.T, a *rig.API, timeout int) created {
	t.Helper()
	began := time.Now()
	ans, err := a.Call(http.MethodPost, "/sandboxes", map[string]any{"templateID": "base", "timeout": timeout})
	if err != nil {
		t.Errorf("create: %v", err)
		return created{}
	}
	var b struct {
		ID   string `json:"sandboxID"`
		Code string `json:"error_code"`
	}
	if err := json.Unmarshal(ans.Body, &b); err != nil {
		t.Errorf("create: %v: %v", ans, err)
	}
	if (ans.Status == http.StatusCreated) != (b.ID != "") || ans.Status != http.StatusCreated && b.Code == "" {
		t.Errorf("create: %v", ans)
	}
	return created{ans.Status, b.ID, b.Code, time.Since(began)}
}

// creates creates n sandboxes at once.
func creates(t *testing.T, apis []*rig.API, n, timeout int) []created {
	t.Helper()
	out := make([]created, n)
	var wg sync.WaitGroup
	for i := range out {
		wg.Go(func() { out[i] = create(t, apis[i%len(apis)], timeout) })
	}
	wg.Wait()
	return out
}

// destroy removes sandboxes, with retries.
func destroy(t *testing.T, apis []*rig.API, all []created) {
	t.Helper()
	var wg sync.WaitGroup
	for _, c := range all {
		if c.id != "" {
			wg.Go(func() {
				ans, err := rig.Try(apis, progressTimeout, http.MethodDelete, "/sandboxes/"+c.id, nil)
				if err != nil || ans.Status != http.StatusNoContent && ans.Status != http.StatusNotFound {
					t.Errorf("delete: %v %v", ans, err)
				}
			})
		}
	}
	wg.Wait()
}

// noneIntermediate fails if a sandbox is in an intermediate state.
func noneIntermediate(t *testing.T, a *rig.API, running int) {
	t.Helper()
	phase := func(m map[string]float64, p string) int {
		return int(m[fmt.Sprintf("millrace_sandboxes{phase=%q}", p)])
	}
	var m map[string]float64
	ok := rig.Poll(progressTimeout, func() bool {
		m = a.Metrics(t)
		return phase(m, "requested")+phase(m, "queued")+phase(m, "placed")+phase(m, "stopping") == 0
	})
	if !ok || phase(m, "running") != running {
		t.Errorf("requested %d, placed %d, stopping %d, running %d of %d", phase(m, "requested"), phase(m, "placed"), phase(m, "stopping"), phase(m, "running"), running)
	}
}

// Schedulers are killed during creates: every create ends with a running sandbox or a
// reason, and no host exceeds its capacity. Covers T-51 and T-56.
func TestFaultSchedulerKilled(t *testing.T) {
	t.Parallel()
	const capacity = 5
	s := newTopology(t, rig.Topology{Gateways: 2, Schedulers: 2, HostArgs: []string{"--capacity", fmt.Sprint(capacity)}, GatewayArgs: []string{"--queue-timeout", "1s"}})
	var refused, made int
	var slowest time.Duration
	for round := range 40 {
		done := make(chan []created, 1)
		go func() { done <- creates(t, s.APIs, capacity+2, 60) }()
		<-time.After(time.Duration(rand.IntN(12_000)) * time.Microsecond)
		victims := []string{fmt.Sprintf("scheduler-%d", 1+round%2)}
		if round%3 == 2 {
			victims = []string{"scheduler-1", "scheduler-2"}
		}
		for _, v := range victims {
			s.Program(v).Kill9()
		}
		for _, v := range victims {
			must(t, s.RestartProgram(v))
		}
		got := 0
		all := <-done
		for _, c := range all {
			slowest = max(slowest, c.took)
			switch c.status {
			case http.StatusCreated:
				got++
				made++
			case http.StatusServiceUnavailable:
				refused++
			default:
				t.Errorf("round %d: %+v", round, c)
			}
		}
		if got > capacity {
			t.Errorf("round %d: %d sandboxes run, the capacity is %d", round, got, capacity)
		}
		destroy(t, s.APIs, all)
	}
	noneIntermediate(t, s.APIs[0], 0)
	t.Logf("%d sandboxes created, %d rejected, the slowest response after %v", made, refused, slowest)
	if made < 40*capacity/2 {
		t.Errorf("only %d sandboxes were created", made)
	}
}
