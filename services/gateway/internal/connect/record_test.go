package connect

import (
	"strconv"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protojson"

	"github.com/millrace/millrace/events/eventstest"
	"github.com/millrace/millrace/events/sandbox"
	pb "github.com/millrace/millrace/schema/process"
	"github.com/millrace/millrace/services/gateway/internal/core"
	"github.com/millrace/millrace/services/gateway/internal/core/coretest"
	"github.com/millrace/millrace/services/gateway/internal/operations"
	records "github.com/millrace/millrace/services/gateway/internal/record"
	"github.com/millrace/millrace/services/gateway/internal/surfacetest"
)

// logged is two gateways over one log, with a host that runs scripts.
type logged struct {
	*surface // the first gateway's
	other    *surface
	host     *coretest.Host
	core     *operations.Operations
	sbx      sandbox.ID
}

var tenant = core.Principal{Tenant: "t"}

func newLogged(t testing.TB) *logged {
	t.Helper()
	srv := eventstest.Start(t)
	gateway := func() (*operations.Operations, *surface, *coretest.Host) {
		log := eventstest.Open(t, srv)
		view := eventstest.View(t, log)
		c := operations.New(core.Config{Log: log, View: view, Secret: make([]byte, 32), Sealer: eventstest.Ring(t, log)})
		return c, serveCore(t, records.NewGateway(c), Config{}), coretest.New(t, log, view)
	}
	r := &logged{}
	r.core, r.surface, r.host = gateway()
	r.host.Start()
	_, r.other, _ = gateway()
	st, err := r.core.Provisioner.CreateSandbox(t.Context(), tenant, sandbox.Requested{Template: "base"})
	if err != nil {
		t.Fatal(err)
	}
	r.sbx = st.ID
	return r
}

func (r *logged) at(headers ...string) []string {
	return append([]string{"E2b-Sandbox-Id: " + string(r.sbx)}, headers...)
}

const echo = `{"process":{"cmd":"echo","args":["a","err:b","c"]},"stdin":false}`

func TestARecordIsReadableFromAnyPositionOnAnyGateway(t *testing.T) {
	r := newLogged(t)
	first := r.stream(t, "Start", echo, r.at()...)
	units := decoder(false)(t, []byte(first.body))
	if n := len(units); n != 6 || units[n-2].What != surfacetest.End {
		t.Fatalf("Start: got %q", first.lines(t))
	}
	id := first.header.Get("X-Process-Id")
	const pid = "1" // the first pid that the host assigns
	for _, s := range []*surface{r.surface, r.other} {
		byPID := s.stream(t, "Connect", `{"process":{"pid":`+pid+`}}`, r.at()...)
		same(t, byPID.lines(t), first.lines(t))
		// accepted, start, three outputs, exited, end
		for from, want := range []int{6, 6, 6, 6, 5, 4, 3, 3, 2, 1} {
			got := s.stream(t, "Connect", `{}`, "E2b-Sandbox-Id: ", "X-Process-Id: "+id, "X-Replay-From: "+strconv.Itoa(from))
			lines := got.lines(t)
			if len(lines) != want || want == 1 != strings.Contains(lines[0], "out_of_range") {
				t.Errorf("from %d: got %q, want %d messages", from, lines, want)
			}
		}
	}
}

func TestARecordOutlivesItsSandbox(t *testing.T) {
	r := newLogged(t)
	first := r.stream(t, "Start", echo, r.at()...)
	if err := r.core.Lifecycle.DestroySandbox(t.Context(), tenant, r.sbx); err != nil {
		t.Fatal(err)
	}
	for _, s := range []*surface{r.surface, r.other} {
		for _, h := range [][]string{r.at(), r.at("X-Process-Id: " + first.header.Get("X-Process-Id"))} {
			again := s.stream(t, "Connect", `{"process":{"pid":1}}`, h...)
			same(t, again.lines(t), first.lines(t))
		}
		if got := s.stream(t, "Start", echo, r.at()...); got.status != 502 {
			t.Errorf("Start in a stopped sandbox: %d %s", got.status, got.body)
		}
		if got := s.stream(t, "Connect", `{"process":{"pid":77}}`, r.at()...); got.status != 502 {
			t.Errorf("Connect to an unknown process in a stopped sandbox: %d %s", got.status, got.body)
		}
	}
}

func TestARetriedStartIsOneProcess(t *testing.T) {
	r := newLogged(t)
	first := r.stream(t, "Start", echo, r.at("Idempotency-Key: k")...)
	again := r.other.stream(t, "Start", echo, r.at("Idempotency-Key: k")...)
	same(t, again.lines(t), first.lines(t))
	changed := r.stream(t, "Start", strings.Replace(echo, `"c"`, `"d"`, 1), r.at("Idempotency-Key: k")...)
	if got := changed.lines(t); len(got) != 1 || !strings.HasPrefix(got[0], `END {"error":{"code":"already_exists"`) {
		t.Errorf("the same key with another body: %q", got)
	}
}

func TestAProcessThatNeverRanReportsTheReason(t *testing.T) {
	r := newLogged(t)
	got := r.stream(t, "Start", `{"process":{"cmd":"nocwd"},"stdin":false}`, r.at()...)
	same(t, got.lines(t), []string{`END {"error":{"code":"invalid_argument","message":"cwd '/nope' does not exist"}}`})
}

func TestInputReachesAProcessThroughAnyGateway(t *testing.T) {
	r := newLogged(t)
	done := make(chan reply)
	go func() { done <- r.stream(t, "Start", `{"process":{"cmd":"cat"}}`, r.at()...) }()
	var list pb.ListResponse
	for len(list.Processes) == 0 {
		if got := r.unary(t, "List", `{}`, r.at()...); protojson.Unmarshal([]byte(got.body), &list) != nil || t.Context().Err() != nil {
			t.Fatalf("List: %d %s", got.status, got.body)
		}
	}
	if p := list.Processes[0]; p.Pid != 1 || p.Config.Cmd != "cat" {
		t.Errorf("List: got %v", p)
	}
	for _, call := range [][2]string{
		{"SendInput", `{"process":{"pid":1},"input":{"stdin":"aGVsbG8K"}}`},
		{"Update", `{"process":{"pid":1},"pty":{"size":{"cols":1,"rows":1}}}`},
		{"SendSignal", `{"process":{"pid":1},"signal":15}`},
		{"CloseStdin", `{"process":{"pid":1}}`},
	} {
		if got := r.other.unary(t, call[0], call[1], r.at()...); got.status != 200 {
			t.Errorf("%s: %d %s", call[0], got.status, got.body)
		}
	}
	got := <-done
	lines := got.lines(t)
	if len(lines) != 4 || !strings.Contains(lines[1], `"stdout":"aGVsbG8K"`) || !strings.Contains(lines[2], `"exitCode":0`) {
		t.Errorf("got %q", lines)
	}
	late := r.unary(t, "SendInput", `{"process":{"pid":1},"input":{"stdin":"aGVsbG8K"}}`, r.at()...)
	if want := `{"code":"not_found","message":"process with pid 1 not found"}`; late.status != 404 || late.body != want {
		t.Errorf("input after the end: %d %s, want 404 %s", late.status, late.body, want)
	}
}

func TestAKilledProcessHasAnEndEvent(t *testing.T) {
	r := newLogged(t)
	done := make(chan reply)
	go func() { done <- r.stream(t, "Start", `{"process":{"cmd":"sleep"},"tag":"t"}`, r.at()...) }()
	for {
		got := r.other.unary(t, "SendSignal", `{"process":{"tag":"t"},"signal":"SIGNAL_SIGKILL"}`, r.at()...)
		if got.status == 200 {
			break
		}
		if got.status != 404 {
			t.Fatalf("SendSignal: %d %s", got.status, got.body)
		}
	}
	got := <-done
	if lines := got.lines(t); len(lines) != 3 || !strings.Contains(lines[1], `{"exitCode":-1,"exited":false,"status":"signal: killed"`) {
		t.Errorf("got %q", lines)
	}
}

// BenchmarkStartOverALog starts `true` on a host that only writes the events of a real
// one, through an embedded server on disk.
func BenchmarkStartOverALog(b *testing.B) {
	r := newLogged(b)
	c, in := dial(b, r.surface)
	request := strings.Replace(raw("Start", typeStreamJSON, envelope(0, `{"process":{"cmd":"true"},"stdin":false}`)), string(living), string(r.sbx), 1)
	for b.Loop() {
		roundTrip(b, c, in, request)
	}
}
