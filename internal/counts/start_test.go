package counts

import (
	"bytes"
	"encoding/binary"
	"io"
	"net/http"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/internal/cli/client"
)

const starts = 100

// A client starts `true` and reads its events to the end, then starts the next one.
func TestStarts(t *testing.T) {
	r := start(t)
	r.runTrue(t) // what is done once is not counted
	sent := r.server.sent
	command, record, catalog, requests := sent.count("cmd"), sent.count("out"), sent.count("proc"), sent.count("$JS")
	switches := contextSwitches(t)
	for range starts {
		r.runTrue(t)
	}
	switches = contextSwitches(t) - switches
	for _, c := range []struct {
		what       string
		got, limit float64
	}{
		{"commands stored per start", float64(sent.count("cmd") - command), 1.05},              // more: repeated after 2 s
		{"messages of the record stored per start", float64(sent.count("out") - record), 4.05}, // claim, start, exit, end
		{"messages of the catalog stored per start", float64(sent.count("proc") - catalog), 3.05},
		{"requests to the log per start", float64(sent.count("$JS") - requests), 0.5},
		{"context switches per start", float64(switches), 130},
	} {
		got := c.got / starts
		t.Logf("%s: %.4g", c.what, got)
		if got > c.limit {
			t.Errorf("%s: %.4g, limit %.4g", c.what, got, c.limit)
		}
	}
}

// runTrue runs `true` as the SDKs do, and reads its events.
func (r *rig) runTrue(t *testing.T) {
	t.Helper()
	const start = `{"process":{"cmd":"true"},"stdin":false}`
	resp, err := r.client.Open(r.context(t), &client.Request{
		Method: http.MethodPost, Path: "/process.Process/Start",
		Body:   append(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(start))), start...),
		Header: map[string]string{"Content-Type": "application/connect+json", "Connect-Protocol-Version": "1", "E2b-Sandbox-Id": r.sandbox},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	events, err := io.ReadAll(resp.Body)
	if err != nil || !bytes.Contains(events, []byte(`"exited":true`)) {
		t.Fatalf("got %q, %v", events, err)
	}
}

// contextSwitches returns the number of context switches of this process, which has all services and
// the client. A busy machine has fewer voluntary and more other ones.
func contextSwitches(t *testing.T) int64 {
	t.Helper()
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		t.Fatal(err)
	}
	return u.Nvcsw + u.Nivcsw
}
