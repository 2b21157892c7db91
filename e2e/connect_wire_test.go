package e2e_test

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/e2e/rig"
)

// spec returns a StartRequest for cmd with args; more holds additional fields.
func spec(cmd string, args []string, more ...any) map[string]any {
	s := map[string]any{"process": map[string]any{"cmd": cmd, "args": args}, "stdin": false}
	for i := 0; i+1 < len(more); i += 2 {
		s[more[i].(string)] = more[i+1]
	}
	return s
}

// byPID returns a request for a process; more holds additional fields.
func byPID(pid uint32, more ...any) map[string]any {
	s := map[string]any{"process": map[string]any{"pid": pid}}
	for i := 0; i+1 < len(more); i += 2 {
		s[more[i].(string)] = more[i+1]
	}
	return s
}

// stdin returns the input for a SendInput request.
func stdin(b []byte) map[string]any {
	return map[string]any{"stdin": base64.StdEncoding.EncodeToString(b)}
}

// TestEveryRouteAcceptsOnlyPOST covers C-001: every route responds, and only to POST.
func TestEveryRouteAcceptsOnlyPOST(t *testing.T) {
	a := api(t)
	box := a.Create(t)
	run := a.StartSpec(t, box.ID, spec("/bin/cat", nil, "stdin", true))
	pid := run.Started(t).Event.Start.PID
	a.ConnectTo(t, box.ID, pid).Started(t)
	for _, tt := range []struct {
		method string
		msg    any
	}{
		{"List", struct{}{}},
		{"Update", byPID(pid)},
		{"SendInput", byPID(pid, "input", stdin([]byte("x")))},
		{"CloseStdin", byPID(pid)},
	} {
		if ans := a.RPC(t, box.ID, "/process.Process/"+tt.method, tt.msg); ans.Status != http.StatusOK {
			t.Errorf("%s: %v", tt.method, ans)
		}
	}
	run.Next()
	other := a.StartStream(t, box.ID, "sleep 60")
	pid = other.Started(t).Event.Start.PID
	if ans := a.RPC(t, box.ID, "/process.Process/SendSignal", byPID(pid, "signal", "SIGNAL_SIGKILL")); ans.Status != http.StatusOK {
		t.Errorf("SendSignal: %v", ans)
	}
	for _, m := range []string{"Start", "Connect", "List", "SendSignal", "SendInput", "CloseStdin", "Update"} {
		ans := a.Do(t, http.MethodGet, "/process.Process/"+m, nil, "E2b-Sandbox-Id", box.ID)
		if ans.Status != http.StatusMethodNotAllowed {
			t.Errorf("GET %s: %v", m, ans)
		}
	}
}

// TestUnaryCallsAreJSON covers C-002: unary calls have JSON requests and responses.
func TestUnaryCallsAreJSON(t *testing.T) {
	a := api(t)
	box := a.Create(t)
	for _, tt := range []struct {
		name, method string
		msg          any
		status       int
	}{
		{"a result", "List", struct{}{}, http.StatusOK},
		{"an error", "SendSignal", byPID(4194301, "signal", 9), http.StatusNotFound},
	} {
		ans := a.RPC(t, box.ID, "/process.Process/"+tt.method, tt.msg)
		if got := ans.Header.Get("Content-Type"); got != "application/json" || ans.Status != tt.status || !json.Valid(ans.Body) {
			t.Errorf("%s: content type %q, %v", tt.name, got, ans)
		}
	}
}

// TestStreamRequestMayBePlainJSON covers C-003: a stream's request may be plain JSON or an
// envelope.
func TestStreamRequestMayBePlainJSON(t *testing.T) {
	a := api(t)
	box := a.Create(t)
	msg := spec("/bin/echo", []string{"hello"})
	plain, err := json.Marshal(msg)
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name string
		req  rig.Request
	}{
		{"an envelope", rig.Message("/process.Process/Start", msg, "E2b-Sandbox-Id", box.ID)},
		{"plain JSON", rig.Request{Path: "/process.Process/Start", Body: plain,
			Headers: []string{"Content-Type", "application/json", "E2b-Sandbox-Id", box.ID}}},
	} {
		run := a.Dial(t, tt.req).All(t)
		if run.Stdout() != "hello\n" || run.End == nil || run.End.ExitCode != 0 {
			t.Errorf("%s: %q %+v %+v", tt.name, run.Stdout(), run.End, run.Error)
		}
	}
}

// TestEnvelopeFraming covers C-004: each message is a flag, a big-endian length and exactly
// that many bytes. 0x00 is a message (C-005), 0x02 the last envelope, sent once with {}
// (C-007).
func TestEnvelopeFraming(t *testing.T) {
	a := api(t)
	box := a.Create(t)
	raw := a.StartStream(t, box.ID, "seq 1 50; echo err >&2").Rest(t)
	var ends, messages int
	for rest := raw; len(rest) > 0; {
		if len(rest) < 5 {
			t.Fatalf("%d bytes are left", len(rest))
		}
		n := int(binary.BigEndian.Uint32(rest[1:5]))
		if len(rest) < 5+n {
			t.Fatalf("promised %d bytes, %d are left", n, len(rest)-5)
		}
		payload := rest[5 : 5+n]
		switch rest[0] {
		case 0:
			messages++
			if ends > 0 || !json.Valid(payload) {
				t.Errorf("message %q after %d ends", payload, ends)
			}
		case rig.FlagEnd:
			ends++
			if string(payload) != "{}" {
				t.Errorf("the last payload is %q", payload)
			}
		default:
			t.Errorf("flags %#x", rest[0])
		}
		rest = rest[5+n:]
	}
	if ends != 1 || messages < 4 {
		t.Errorf("%d ends after %d messages", ends, messages)
	}
}

// TestMessagesHaveNoFlags covers C-005: all messages before the last envelope have the flag 0.
func TestMessagesHaveNoFlags(t *testing.T) {
	a := api(t)
	run := a.StartStream(t, a.Create(t).ID, "echo x").All(t)
	for _, m := range run.Messages {
		if m.Flags != 0 {
			t.Errorf("flags %#x: %s", m.Flags, m.Payload)
		}
	}
}

// TestCompressionOnlyOnRequest covers C-006: nothing is compressed unless the client asks for
// it, and a compressed message without a declared encoding is rejected.
func TestCompressionOnlyOnRequest(t *testing.T) {
	a := api(t)
	box := a.Create(t)
	msg, err := json.Marshal(spec("/bin/echo", []string{"x"}))
	if err != nil {
		t.Fatal(err)
	}
	run := a.Dial(t, rig.Request{Path: "/process.Process/Start", Body: rig.Seal(rig.FlagCompressed, msg),
		Headers: []string{"Content-Type", "application/connect+json", "E2b-Sandbox-Id", box.ID}}).All(t)
	if run.Error == nil || run.Error.Code != "internal" && run.Error.Code != "invalid_argument" {
		t.Errorf("a compressed message without an encoding: %s", run.Last.Payload)
	}
	if len(run.Messages) > 0 {
		t.Errorf("the command ran: %s", run.Messages[0].Payload)
	}
	// With a declared encoding it is accepted, and responses are compressed on request.
	large := spec("/bin/bash", []string{"-c", "seq 1 20000"})
	if msg, err = json.Marshal(large); err != nil {
		t.Fatal(err)
	}
	for _, accepts := range []string{"", "gzip"} {
		r := a.Dial(t, rig.Request{Path: "/process.Process/Start", Body: rig.Seal(rig.FlagCompressed, zip(msg)),
			Headers: []string{"Content-Type", "application/connect+json", "E2b-Sandbox-Id", box.ID,
				"Connect-Content-Encoding", "gzip", "Connect-Accept-Encoding", accepts}})
		out, zipped := unzipped(t, r)
		if out != seq(20000) || zipped != (accepts == "gzip") || r.Header.Get("Connect-Content-Encoding") != accepts {
			t.Errorf("a client that accepts %q: %d bytes, compressed: %v, %q", accepts, len(out), zipped, r.Header.Get("Connect-Content-Encoding"))
		}
	}
}

func zip(b []byte) []byte {
	var z bytes.Buffer
	w := gzip.NewWriter(&z)
	w.Write(b)
	w.Close()
	return z.Bytes()
}

// unzipped returns a stream's stdout, and whether any of it was compressed.
func unzipped(t *testing.T, r *rig.Raw) (out string, zipped bool) {
	t.Helper()
	var b strings.Builder
	for {
		e, err := r.Next()
		if err != nil {
			t.Fatal(err)
		}
		if e.Flags&rig.FlagCompressed != 0 {
			z, err := gzip.NewReader(bytes.NewReader(e.Payload))
			if err != nil {
				t.Fatal(err)
			}
			if e.Payload, err = io.ReadAll(z); err != nil {
				t.Fatal(err)
			}
			zipped = true
		}
		if e.Flags&rig.FlagEnd != 0 {
			return b.String(), zipped
		}
		m, err := rig.Decode(e)
		if err != nil {
			t.Fatal(err)
		}
		if m.Event.Data != nil {
			b.Write(m.Event.Data.Stdout)
		}
	}
}

// TestLastEnvelopeIsEmptyObject covers C-007: the last envelope of a successful stream is {}.
func TestLastEnvelopeIsEmptyObject(t *testing.T) {
	a := api(t)
	run := a.StartStream(t, a.Create(t).ID, "exit 3").All(t) // All checks that there is exactly one
	if run.Last.Flags != rig.FlagEnd || string(run.Last.Payload) != "{}" {
		t.Errorf("last envelope: %#x %s", run.Last.Flags, run.Last.Payload)
	}
}

// TestErrorsAreInTheLastEnvelope covers C-008: a stream's error is in the last envelope, with
// HTTP status 200.
func TestErrorsAreInTheLastEnvelope(t *testing.T) {
	a := api(t)
	box := a.Create(t)
	for _, tt := range []struct {
		name string
		open func() *rig.Raw
		code string
	}{
		{"missing cwd", func() *rig.Raw {
			return a.StartSpec(t, box.ID, map[string]any{"process": map[string]any{"cmd": "/bin/true", "cwd": "/nope"}})
		}, "invalid_argument"},
		{"unknown pid", func() *rig.Raw { return a.ConnectTo(t, box.ID, 4194301) }, "not_found"},
		{"unknown user", func() *rig.Raw {
			return a.StartStream(t, box.ID, "true", "Authorization", "Basic "+base64.StdEncoding.EncodeToString([]byte("nobodyhere:")))
		}, "unauthenticated"},
		{"an invalid message", func() *rig.Raw {
			return a.Dial(t, rig.Request{Path: "/process.Process/Start", Body: rig.Seal(0, []byte(`{"process":3}`)),
				Headers: []string{"Content-Type", "application/connect+json", "E2b-Sandbox-Id", box.ID}})
		}, "invalid_argument"},
	} {
		r := tt.open()
		if r.Status != http.StatusOK {
			t.Errorf("%s: status %d", tt.name, r.Status)
			continue
		}
		run := r.All(t)
		if run.Error == nil || run.Error.Code != tt.code || run.Error.Message == "" || run.End != nil {
			t.Errorf("%s: %s, want the code %s", tt.name, run.Last.Payload, tt.code)
		}
	}
}

// TestStreamEndsWithTheLastEnvelope covers C-009: a stream ends with the last envelope,
// regardless of how the process ended.
func TestStreamEndsWithTheLastEnvelope(t *testing.T) {
	a := api(t)
	box := a.Create(t)
	t.Run("killed", func(t *testing.T) {
		r := a.StartStream(t, box.ID, "sleep 60")
		a.RPC(t, box.ID, "/process.Process/SendSignal", byPID(r.Started(t).Event.Start.PID, "signal", "SIGNAL_SIGKILL"))
		end, words := rest(t, r)
		if end == nil || end.Exited || end.ExitCode != -1 || end.Status != "signal: killed" || words != "{}" {
			t.Errorf("end %+v, last %s", end, words)
		}
	})
	t.Run("timed out", func(t *testing.T) {
		r := a.StartStream(t, box.ID, "echo before; sleep 60", "Connect-Timeout-Ms", "500")
		run := r.All(t)
		if run.Stdout() != "before\n" || run.Error == nil || run.Error.Code != "deadline_exceeded" {
			t.Errorf("%q, last %s", run.Stdout(), run.Last.Payload)
		}
	})
	t.Run("the sandbox is killed", func(t *testing.T) {
		other := a.Create(t)
		r := a.StartStream(t, other.ID, "sleep 60")
		r.Started(t)
		a.Kill(t, other.ID)
		end, words := rest(t, r)
		if end == nil && !strings.Contains(words, `"error"`) || end != nil && end.ExitCode == 0 {
			t.Errorf("end %+v, last %s", end, words)
		}
	})
	t.Run("never started", func(t *testing.T) {
		run := a.StartSpec(t, box.ID, map[string]any{"process": map[string]any{"cmd": "/bin/true", "cwd": "/nope"}}).All(t)
		if run.Error == nil {
			t.Errorf("last %s", run.Last.Payload)
		}
	})
}

// rest reads a stream after its start event, and returns the end and the last payload.
func rest(t *testing.T, r *rig.Raw) (*rig.EndEvent, string) {
	t.Helper()
	var end *rig.EndEvent
	for {
		e, err := r.Next()
		if err != nil {
			t.Fatal(err)
		}
		if e.Flags&rig.FlagEnd != 0 {
			return end, string(e.Payload)
		}
		m, err := rig.Decode(e)
		if err != nil {
			t.Fatal(err)
		}
		if m.Event.End != nil {
			end = m.Event.End
		}
	}
}

// TestEventIsOneOfFourKinds covers C-010: each event is exactly one of four kinds; All checks
// each message.
func TestEventIsOneOfFourKinds(t *testing.T) {
	a := api(t)
	run := a.StartStream(t, a.Create(t).ID, "echo a; sleep 1.3; echo b >&2", "Keepalive-Ping-Interval", "1").All(t)
	kinds := map[string]int{}
	for _, m := range run.Messages {
		kinds[m.Keys[0]]++
	}
	if kinds["start"] != 1 || kinds["data"] != 2 || kinds["end"] != 1 || kinds["keepalive"] < 1 || len(kinds) != 4 {
		t.Errorf("events: %v", kinds)
	}
}

// TestStartEventHasThePID covers C-011: the first event is start and has the pid of List.
func TestStartEventHasThePID(t *testing.T) {
	a := api(t)
	box := a.Create(t)
	r := a.StartStream(t, box.ID, "sleep 60")
	e, err := r.Next()
	if err != nil {
		t.Fatal(err)
	}
	m, err := rig.Decode(e)
	if err != nil || m.Event.Start == nil || m.Event.Start.PID == 0 {
		t.Fatalf("first event: %s (%v)", e.Payload, err)
	}
	if pids := list(t, a, box.ID); len(pids) != 1 || pids[0].PID != m.Event.Start.PID {
		t.Errorf("List: %+v, want pid %d", pids, m.Event.Start.PID)
	}
}

// listed is an entry of List.
type listed struct {
	PID    uint32 `json:"pid"`
	Tag    string `json:"tag"`
	Config struct {
		Cmd  string            `json:"cmd"`
		Args []string          `json:"args"`
		Envs map[string]string `json:"envs"`
		Cwd  string            `json:"cwd"`
	} `json:"config"`
}

func list(t testing.TB, a *rig.API, sandbox string) []listed {
	t.Helper()
	var res struct{ Processes []listed }
	ans := a.RPC(t, sandbox, "/process.Process/List", struct{}{})
	if ans.Status != http.StatusOK {
		t.Fatalf("List: %v", ans)
	}
	ans.Decode(t, &res)
	return res.Processes
}

// allBytes returns each byte value once, which is not valid UTF-8.
func allBytes() []byte {
	b := make([]byte, 256)
	for i := range b {
		b[i] = byte(i)
	}
	return b
}

// printAll is a command that prints allBytes to a descriptor.
const printAll = `for i in $(seq 0 255); do printf "\\x$(printf %%x $i)"; done >&%d`

// TestBinaryOutputArrivesUnchanged covers C-012: all byte values arrive unchanged, on the
// stream that they were written to.
func TestBinaryOutputArrivesUnchanged(t *testing.T) {
	a := api(t)
	box := a.Create(t)
	for fd, stream := range map[int]string{1: "stdout", 2: "stderr"} {
		run := a.StartStream(t, box.ID, fmt.Sprintf(printAll, fd)).All(t)
		if !bytes.Equal(run.Out[stream], allBytes()) || len(run.Out) != 1 {
			t.Errorf("%s: %x (%d streams)", stream, run.Out[stream], len(run.Out))
		}
	}
}

// dataEvents returns the output of a run, event by event.
func dataEvents(run *rig.Run) []string {
	var out []string
	for _, m := range run.Messages {
		if m.Event.Data != nil {
			_, b := m.Event.Output()
			out = append(out, string(b))
		}
	}
	return out
}

// TestEventsEndAtLineEnds covers C-013: output events end at line ends.
func TestEventsEndAtLineEnds(t *testing.T) {
	a := api(t)
	box := a.Create(t)
	run := a.StartStream(t, box.ID, "seq 1 5").All(t)
	if got := strings.Join(dataEvents(run), "|"); got != "1\n|2\n|3\n|4\n|5\n" {
		t.Errorf("seq 1 5: %q", got)
	}
	slow := "printf a; sleep 0.5; printf 'b\\n'"
	run = a.StartStream(t, box.ID, slow, "X-Line-Flush", "never").All(t)
	if got := strings.Join(dataEvents(run), "|"); got != "ab\n" {
		t.Errorf("a partial line, line_flush=never: %q", got)
	}
	run = a.StartStream(t, box.ID, slow).All(t)
	if got := strings.Join(dataEvents(run), "|"); got != "a|b\n" {
		t.Errorf("a partial line: %q", got)
	}
	lines := a.Commands(t, box.ID, slow).All(t)
	if len(lines) != 3 || lines[1].Type != "stdout" || string(lines[1].Bytes()) != "ab\n" {
		t.Errorf("a partial line as NDJSON: %s", raws(lines))
	}
}

func raws(ls []*rig.Line) string {
	var b strings.Builder
	for _, l := range ls {
		b.WriteString(l.Raw + "\n")
	}
	return b.String()
}

// TestShortOutputIsOneEvent covers C-014: output without a newline arrives as one event.
func TestShortOutputIsOneEvent(t *testing.T) {
	a := api(t)
	box := a.Create(t)
	run := a.StartStream(t, box.ID, "printf abc").All(t)
	if got := dataEvents(run); len(got) != 1 || got[0] != "abc" {
		t.Errorf("events: %q", got)
	}
	if lines := a.Commands(t, box.ID, "printf abc").All(t); len(lines) != 3 || string(lines[1].Bytes()) != "abc" {
		t.Errorf("lines: %s", raws(lines))
	}
}

// lastEvent returns the payload of the last message.
func lastEvent(run *rig.Run) string {
	if len(run.Messages) == 0 {
		return ""
	}
	return string(run.Messages[len(run.Messages)-1].Payload)
}

// TestEndEventHasAllFields covers C-015: a successful end has all fields, including zeros.
func TestEndEventHasAllFields(t *testing.T) {
	a := api(t)
	run := a.StartStream(t, a.Create(t).ID, "true").All(t)
	var m struct {
		Event struct {
			End map[string]any `json:"end"`
		} `json:"event"`
	}
	if err := json.Unmarshal([]byte(lastEvent(run)), &m); err != nil {
		t.Fatal(err)
	}
	end := m.Event.End
	if end["exitCode"] != 0.0 || end["exited"] != true || end["status"] != "" || end["error"] != "" || len(end) != 4 {
		t.Errorf("end: %v", end)
	}
}

// TestEndEventHasTheExitCode covers C-016: the end event has the exit code and a status text.
func TestEndEventHasTheExitCode(t *testing.T) {
	a := api(t)
	run := a.StartStream(t, a.Create(t).ID, "exit 3").All(t)
	if e := run.End; e == nil || e.ExitCode != 3 || !e.Exited || e.Status != "exit status 3" {
		t.Errorf("end: %s", lastEvent(run))
	}
}

// TestKeepalivesByDefault covers C-017: without a requested interval, a client receives a
// keepalive at least every 90 s.
func TestKeepalivesByDefault(t *testing.T) {
	if os.Getenv(EnvSoak) == "" {
		t.Skip("takes minutes: set " + EnvSoak)
	}
	t.Parallel()
	a := api(t)
	run := a.StartStream(t, a.Create(t, "timeout", 600).ID, "sleep 100").All(t)
	n := 0
	for _, m := range run.Messages {
		if m.Event.Keepalive != nil {
			n++
		}
	}
	if n != 1 {
		t.Errorf("%d keepalives in 100 s", n)
	}
}

// TestKeepaliveInterval covers C-017: an idle stream sends keepalives at the interval that the
// client requests.
func TestKeepaliveInterval(t *testing.T) {
	t.Parallel()
	a := api(t)
	began := time.Now()
	run := a.StartStream(t, a.Create(t).ID, "sleep 3.5", "Keepalive-Ping-Interval", "1").All(t)
	n := 0
	for _, m := range run.Messages {
		if m.Event.Keepalive != nil {
			n++
			if payload := string(m.Payload); !strings.Contains(payload, `"keepalive":{}`) {
				t.Errorf("keepalive: %s", payload)
			}
		}
	}
	if n < 2 || n > int(time.Since(began)/time.Second) {
		t.Errorf("%d keepalives in %v", n, time.Since(began))
	}
}
