package gateway_test

import (
	"context"
	"net/http"
	"strings"
	"testing"

	"github.com/millrace/millrace/events/sandbox"
)

// leaveCreate starts a create that no host accepts, closes its connection once the record
// exists, and returns the sandbox's id.
func (f *fixture) leaveCreate(name, idempotencyKey string) sandbox.ID {
	f.t.Helper()
	ctx, leave := context.WithCancel(f.t.Context())
	defer leave()
	body := `{"templateID":"base","metadata":{"make":"never","name":"` + name + `"}}`
	req, err := http.NewRequestWithContext(ctx, "POST", "http://"+f.addr+"/sandboxes", strings.NewReader(body))
	if err != nil {
		f.t.Fatal(err)
	}
	req.Header.Set("X-Api-Key", key)
	if idempotencyKey != "" {
		req.Header.Set("Idempotency-Key", idempotencyKey)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		if resp, err := http.DefaultClient.Do(req); err == nil {
			resp.Body.Close()
			f.t.Errorf("create %s was answered %d, want it to wait", name, resp.StatusCode)
		}
	}()
	st := f.awaitSandbox(func(s *sandbox.State) bool { return s.Request.Metadata["name"] == name })
	leave()
	<-done
	return st.ID
}

// awaitSandbox waits for a sandbox for which want returns true.
func (f *fixture) awaitSandbox(want func(*sandbox.State) bool) sandbox.State {
	f.t.Helper()
	changed, stop := f.view.Changes()
	defer stop()
	for {
		if all := f.view.Sandboxes(want); len(all) > 0 {
			return all[0]
		}
		select {
		case <-changed:
		case <-f.t.Context().Done():
			f.t.Fatal("no matching sandbox appeared")
		}
	}
}

// With an Idempotency-Key the client may retry the create, and gets its sandbox.
func TestAbandonedCreateEndsUnlessKeyed(t *testing.T) {
	f := newFixture(t)
	keyed := f.leaveCreate("keyed", "once")
	left := f.leaveCreate("left", "")
	f.awaitSandbox(func(s *sandbox.State) bool { return s.ID == left && s.Over() })
	if st, ok := f.view.Sandbox(keyed); !ok || st.Over() {
		t.Errorf("create with a key: found %v, phase %q; want it to wait", ok, st.Phase)
	}
}
