package counts

import (
	"net/http"
	"testing"

	"github.com/millrace/millrace/internal/cli/client"
)

const lists = 100

// A client lists the sandbox's processes. The services are alone on their server: what they know of
// its streams is enough, without a request.
func TestLists(t *testing.T) {
	r := start(t)
	r.runTrue(t)
	r.list(t)
	before, switches := r.server.sent.count("$JS"), contextSwitches(t)
	for range lists {
		r.list(t)
	}
	switches = contextSwitches(t) - switches
	for _, c := range []struct {
		what       string
		got, limit float64
	}{
		{"requests to the log per list", float64(r.server.sent.count("$JS") - before), 0.1}, // some feed was silent
		{"context switches per list", float64(switches), 40},
	} {
		got := c.got / lists
		t.Logf("%s: %.4g", c.what, got)
		if got > c.limit {
			t.Errorf("%s: %.4g, limit %.4g", c.what, got, c.limit)
		}
	}
}

// list lists processes as the SDKs do.
func (r *rig) list(t *testing.T) {
	t.Helper()
	if _, err := r.client.Call(r.context(t), &client.Request{
		Method: http.MethodPost, Path: "/process.Process/List", JSON: map[string]any{},
		Header: map[string]string{"Connect-Protocol-Version": "1", "E2b-Sandbox-Id": r.sandbox},
	}, nil); err != nil {
		t.Fatal(err)
	}
}
