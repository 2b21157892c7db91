package connect

import (
	"bufio"
	"context"
	"encoding/base64"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/millrace/millrace/events/file"
	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/process"
	fspb "github.com/millrace/millrace/schema/filesystem"
	pb "github.com/millrace/millrace/schema/process"
	"github.com/millrace/millrace/services/gateway/internal/surfacetest"
)

// running serves a running process with pid 7 and tag "t"; pid 8 has a terminal,
// pid 9 has ended.
func running(t *testing.T) *surface {
	t.Helper()
	f := newFake(nil)
	tag := "t"
	active := surfacetest.NewRecord("active", process.Spec{Cmd: "cat", Args: []string{"-n"}, Cwd: "/tmp", Tag: &tag, Stdin: true}, surfacetest.Out("x"))
	f.add(living, 7, active)
	f.add(living, 8, surfacetest.NewRecord("tty", process.Spec{Cmd: "sh", PTY: &process.Size{}}, surfacetest.TTY("$ ")))
	f.add(living, 9, recordOf(surfacetest.Code(0)))
	return serve(t, f, Config{})
}

// TestListReturnsRunningProcesses covers C-033.
func TestListReturnsRunningProcesses(t *testing.T) {
	s := running(t)
	r := s.unary(t, "List", `{}`, "Connect-Protocol-Version: 1")
	var got pb.ListResponse
	if err := protojson.Unmarshal([]byte(r.body), &got); err != nil {
		t.Fatal(err)
	}
	if len(got.Processes) != 2 || r.header.Get("Content-Type") != "application/json" {
		t.Fatalf("got %v as %s", &got, r.header.Get("Content-Type"))
	}
	p := got.Processes[0]
	if p.Pid != 7 || p.GetTag() != "t" || p.Config.Cmd != "cat" || !slices.Equal(p.Config.Args, []string{"-n"}) || p.Config.GetCwd() != "/tmp" {
		t.Errorf("got %v", p)
	}
}

// TestUnaryCallsWorkInBothCodecs covers C-002.
func TestUnaryCallsWorkInBothCodecs(t *testing.T) {
	s := running(t)
	req := &pb.SendSignalRequest{Process: &pb.ProcessSelector{Selector: &pb.ProcessSelector_Tag{Tag: "t"}}, Signal: pb.Signal_SIGNAL_SIGTERM}
	raw, err := proto.Marshal(req)
	if err != nil {
		t.Fatal(err)
	}
	r := s.post(t, processService+"SendSignal", typeProto, string(raw))
	if r.status != 200 || r.body != "" || r.header.Get("Content-Type") != typeProto {
		t.Errorf("got %d %q %v", r.status, r.body, r.header)
	}
	for _, msg := range []string{`{"process":{"pid":7},"signal":"SIGNAL_SIGKILL"}`, `{"process":{"pid":7},"signal":9}`, `{"pid":7,"signal":9}`, `{"tag":"t","signal":9}`} {
		if r := s.unary(t, "SendSignal", msg); r.status != 200 || r.body != "{}" || r.header.Get("Content-Type") != typeJSON {
			t.Errorf("%s: got %d %q %v", msg, r.status, r.body, r.header)
		}
	}
	if want := []int32{15, 9, 9, 9, 9}; !slices.Equal(s.signals, want) {
		t.Errorf("signals %v, want %v", s.signals, want)
	}
}

// TestUnaryErrorsHaveTheirCodeAndStatus covers C-028.
func TestUnaryErrorsHaveTheirCodeAndStatus(t *testing.T) {
	for _, tt := range []struct {
		method, msg string
		err         error
		status      int
		want        string
	}{
		{"SendSignal", `{"process":{"pid":4242},"signal":9}`, nil, 404, `{"code":"not_found","message":"process with pid 4242 not found"}`},
		{"SendSignal", `{"process":{"pid":9},"signal":9}`, nil, 404, `{"code":"not_found","message":"process with pid 9 not found"}`},
		{"SendSignal", `{"process":{"pid":7},"signal":2}`, nil, 501, `{"code":"unimplemented","message":"invalid signal: 2"}`},
		{"SendSignal", `{"process":{"pid":7}}`, nil, 501, `{"code":"unimplemented","message":"invalid signal: SIGNAL_UNSPECIFIED"}`},
		{"SendSignal", `{"signal":9}`, nil, 400, `{"code":"invalid_argument","message":"process selector is required: pid or tag"}`},
		{"SendInput", `{"process":{"pid":7},"input":{"stdin":"YQ=="}}`, kind.New(kind.Precondition, "", "", "off"), 500, `{"code":"internal","message":"error writing to stdin: stdin not enabled or closed"}`},
		{"SendInput", `{"process":{"pid":7},"input":{"stdin":"YQ=="}}`, kind.New(kind.NotFound, "", "", "ended"), 404, `{"code":"not_found","message":"process with pid 7 not found"}`},
		{"SendInput", `{"process":{"pid":7},"input":{"stdin":"YQ=="}}`, kind.New(kind.Unavailable, "", "", "the host is away"), 503, `{"code":"unavailable","message":"the host is away"}`},
		{"SendInput", `{"process":{"pid":7},"input":{"pty":"YQ=="}}`, nil, 500, `{"code":"internal","message":"error writing to tty: tty not assigned to process"}`},
		{"SendInput", `{"process":{"pid":8},"input":{"stdin":"YQ=="}}`, nil, 500, `{"code":"internal","message":"error writing to stdin: tty assigned to process: send pty input instead"}`},
		{"SendInput", `{"process":{"pid":7}}`, nil, 501, `{"code":"unimplemented","message":"invalid input type: want stdin or pty"}`},
		{"CloseStdin", `{"process":{"pid":7}}`, kind.New(kind.Conflict, "", "", "closed"), 500, `{"code":"internal","message":"error closing stdin: stdin not enabled or closed"}`},
		{"CloseStdin", `{"process":{"pid":8}}`, nil, 500, `{"code":"internal","message":"error closing stdin: tty assigned to process: send Ctrl+D (0x04) instead"}`},
		{"List", `{"a":` + strings.Repeat("[", 100000), nil, 400, `{"code":"invalid_argument","message":"unmarshal`},
		{"List", `{}{}`, nil, 400, `{"code":"invalid_argument","message":"unmarshal`},
		{"SendSignal", `{"signal":9,"signal":9}`, nil, 400, `{"code":"invalid_argument","message":"unmarshal`},
	} {
		s := running(t)
		s.inputErr = tt.err
		r := s.unary(t, tt.method, tt.msg)
		if r.status != tt.status || !strings.HasPrefix(r.body, tt.want) || r.header.Get("Content-Type") != "application/json" {
			t.Errorf("%s %.80s: got %d %s, want %d %s", tt.method, tt.msg, r.status, r.body, tt.status, tt.want)
		}
	}
}

// TestInputAndItsEndReachTheProcess covers C-029.
func TestInputAndItsEndReachTheProcess(t *testing.T) {
	s := running(t)
	data := surfacetest.AllBytes()
	b64 := base64.StdEncoding.EncodeToString([]byte(data))
	s.unary(t, "SendInput", `{"process":{"pid":7},"input":{"stdin":"`+b64+`"}}`)
	s.unary(t, "SendInput", `{"process":{"pid":8},"input":{"pty":"bHMK"}}`)
	s.unary(t, "CloseStdin", `{"process":{"pid":7}}`)
	if want := []string{data, "ls\n", "", "EOF"}; !slices.Equal(s.inputs, want) {
		t.Errorf("got %q, want %q", s.inputs, want)
	}
}

// SendInput accepts larger messages than other methods, in any encoding, up to MaxInput.
func TestSendInputAcceptsLargeMessages(t *testing.T) {
	f := newFake(nil)
	f.add(living, 7, surfacetest.NewRecord("active", process.Spec{Cmd: "cat", Stdin: true}, surfacetest.Out("x")))
	s := serve(t, f, Config{MaxMessage: 1 << 10, MaxInput: 8 << 10})
	data := strings.Repeat("x", 3<<10)
	msg := func(data string) string {
		return `{"process":{"pid":7},"input":{"stdin":"` + base64.StdEncoding.EncodeToString([]byte(data)) + `"}}`
	}
	s.unary(t, "SendInput", msg(data))
	s.unary(t, "SendInput", string(appendGzip(nil, []byte(msg(data)))), "Content-Encoding: gzip")
	if want := []string{data, data}; !slices.Equal(s.inputs, want) {
		t.Errorf("got %.80q", s.inputs)
	}
	const over = `{"code":"resource_exhausted","message":"message is larger than the limit of `
	for name, r := range map[string]reply{
		"over the limit":    s.unary(t, "SendInput", msg(strings.Repeat("x", 7<<10))),
		"a bomb":            s.unary(t, "SendInput", string(appendGzip(nil, make([]byte, 1<<20))), "Content-Encoding: gzip"),
		"of another method": s.unary(t, "SendSignal", `{"process":{"pid":7},"x":"`+data+`"}`),
	} {
		if r.status != 429 || !strings.HasPrefix(r.body, over) {
			t.Errorf("%s: got %d %s", name, r.status, r.body)
		}
	}
	s.unary(t, "SendInput", msg("small"))
	if got := s.inputs[len(s.inputs)-1]; got != "small" {
		t.Errorf("afterwards: got %q", got)
	}
}

// A large message waits for a slot, and fails when its context ends.
func TestLargeInputsWaitForASlot(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	slots := make(chan struct{}, 1)
	first, second := bulk{slots: slots}, bulk{slots: slots}
	if err := first.acquire(ctx); err != nil {
		t.Fatal(err)
	}
	if err := first.acquire(ctx); err != nil {
		t.Errorf("acquire twice: %v", err)
	}
	waits := make(chan error)
	go func() { waits <- second.acquire(ctx) }()
	first.release()
	if err := <-waits; err != nil {
		t.Errorf("acquire after a release: %v", err)
	}
	cancel()
	if err := (&bulk{slots: slots}).acquire(ctx); err == nil || errorBodyOf(err).Code != CodeExhausted {
		t.Errorf("acquire without a free slot: got %v", err)
	}
}

// The key is passed to the core, and a conflict of keys is not reported as a closed stdin.
func TestInputPassesTheIdempotencyKey(t *testing.T) {
	s := running(t)
	const msg = `{"process":{"pid":7},"input":{"stdin":"YQ=="}}`
	s.unary(t, "SendInput", msg, "Idempotency-Key: k1")
	if want := []string{"k1: a"}; !slices.Equal(s.inputs, want) {
		t.Errorf("got %q, want %q", s.inputs, want)
	}
	s.inputErr = kind.New(kind.Conflict, "", "", "used")
	if r := s.unary(t, "SendInput", msg, "Idempotency-Key: k1"); r.status != 409 || r.body != `{"code":"already_exists","message":"used"}` {
		t.Errorf("got %d %s", r.status, r.body)
	}
}

// TestUpdateResizesTheTerminal covers C-031.
func TestUpdateResizesTheTerminal(t *testing.T) {
	s := running(t)
	for _, msg := range []string{`{"process":{"pid":8},"pty":{"size":{"cols":4000,"rows":2000}}}`, `{"process":{"pid":8},"pty":{"size":{}}}`, `{"process":{"pid":8}}`} {
		if r := s.unary(t, "Update", msg); r.status != 200 || r.body != "{}" {
			t.Errorf("%s: got %d %s", msg, r.status, r.body)
		}
	}
	if want := []process.Size{{Cols: 4000, Rows: 2000}, {}}; !slices.Equal(s.sizes, want) {
		t.Errorf("got %v, want %v", s.sizes, want)
	}
}

const selects = `{"start":{"process":{"pid":7}}}`

func input(data string) string {
	return `{"data":{"input":{"stdin":"` + base64.StdEncoding.EncodeToString([]byte(data)) + `"}}}`
}

func TestStreamInputKeepsOrder(t *testing.T) {
	s := running(t)
	r := s.stream(t, "StreamInput", selects)
	same(t, r.lines(t), []string{`{}`, `END {}`})
	body := envelope(0, selects)
	var want []string
	for i := range 100 {
		want = append(want, fmt.Sprint(i))
		body += envelope(0, input(want[i])) + envelope(0, `{"keepalive":{}}`)
	}
	r = s.post(t, processService+"StreamInput", typeStreamJSON, body)
	same(t, r.lines(t), []string{`{}`, `END {}`})
	same(t, s.inputs, want)
}

func TestStreamInputErrors(t *testing.T) {
	for _, tt := range []struct{ name, body, want string }{
		{"nothing", "", `END {"error":{"code":"invalid_argument","message":"the first event must be start"}}`},
		{"data first", envelope(0, input("a")), `END {"error":{"code":"invalid_argument","message":"the first event must be start"}}`},
		{"start twice", envelope(0, selects) + envelope(0, selects), `END {"error":{"code":"invalid_argument","message":"a second start event"}}`},
		{"an unknown process", envelope(0, `{"start":{"process":{"pid":4242}}}`), `END {"error":{"code":"not_found","message":"process with pid 4242 not found"}}`},
		{"cut short", envelope(0, selects) + "\x00\x00\x00", `END {"error":{"code":"invalid_argument","message":"protocol error: incomplete envelope: 3 of 5 bytes of its head"}}`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := running(t)
			r := s.post(t, processService+"StreamInput", typeStreamJSON, tt.body)
			same(t, r.lines(t), []string{tt.want})
		})
	}
}

func TestStreamInputIsProcessedOnArrival(t *testing.T) {
	s := running(t)
	c, err := net.Dial("tcp", strings.TrimPrefix(s.base, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(time.Minute))
	fmt.Fprintf(c, "POST %sStreamInput HTTP/1.1\r\nHost: x\r\nE2b-Sandbox-Id: %s\r\nContent-Type: %s\r\nTransfer-Encoding: chunked\r\n\r\n",
		processService, living, typeStreamJSON)
	send := func(msg string) {
		raw := envelope(0, msg)
		fmt.Fprintf(c, "%x\r\n%s\r\n", len(raw), raw)
	}
	send(selects)
	for i := range 5 {
		send(input(fmt.Sprint(i)))
		for deadline := time.Now().Add(5 * time.Second); ; {
			s.mu.Lock()
			n := len(s.inputs)
			s.mu.Unlock()
			if n == i+1 {
				break
			}
			if time.Now().After(deadline) {
				t.Fatalf("message %d was not processed before the end of the request", i)
			}
		}
	}
	io.WriteString(c, "0\r\n\r\n")
	res, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	same(t, (&reply{body: string(raw)}).lines(t), []string{`{}`, `END {}`})
}

// TestFileMethodsReachTheSandbox covers N-011.
func TestFileMethodsReachTheSandbox(t *testing.T) {
	s := running(t)
	var err error
	if s.entry, err = proto.Marshal(&fspb.EntryInfo{Name: "a", Path: "/tmp/a", Type: fspb.FileType_FILE_TYPE_FILE, Size: 3}); err != nil {
		t.Fatal(err)
	}
	const entry = `{"name":"a","type":"FILE_TYPE_FILE","path":"/tmp/a","size":"3"}`
	for _, tt := range []struct {
		method, msg string
		status      int
		want        string
		op          file.Op
	}{
		{"Write", `{"path":"/tmp/a","data":"YWJj"}`, 200, `{"entry":` + entry + `}`, file.OpWrite},
		{"Stat", `{"path":"/tmp/a"}`, 200, `{"entry":` + entry + `}`, file.OpStat},
		{"MakeDir", `{"path":"/tmp/a"}`, 200, `{"entry":` + entry + `}`, file.OpMakeDir},
		{"Move", `{"source":"/tmp/b","destination":"/tmp/a"}`, 200, `{"entry":` + entry + `}`, file.OpMove},
		{"ListDir", `{"path":"/tmp","depth":3}`, 200, `{"entries":[` + entry + `,` + entry + `]}`, file.OpList},
		{"ListDir", `{}`, 200, `{"entries":[` + entry + `,` + entry + `]}`, file.OpList},
		{"Remove", `{"path":"/tmp/a"}`, 200, `{}`, file.OpRemove},
		{"Stat", `{"path":"/missing"}`, 404, `{"code":"not_found","message":"path '/missing' does not exist"}`, file.OpStat},
		{"Stat", `{}`, 400, `{"code":"invalid_argument","message":"path is required"}`, 0},
		{"Remove", `{}`, 400, `{"code":"invalid_argument","message":"path is required"}`, 0},
		{"Move", `{"source":"/a"}`, 400, `{"code":"invalid_argument","message":"destination is required"}`, 0},
	} {
		s.fileRequests = nil
		r := s.post(t, filesystemService+tt.method, typeJSON, tt.msg, "Authorization: Basic dXNlcjo=")
		if got := strings.ReplaceAll(r.body, " ", ""); r.status != tt.status || got != strings.ReplaceAll(tt.want, " ", "") {
			t.Errorf("%s: got %d %s, want %d %s", tt.method, r.status, r.body, tt.status, tt.want)
		}
		switch {
		case tt.op == 0 && len(s.fileRequests) > 0:
			t.Errorf("%s %s was sent", tt.method, tt.msg)
		case tt.op != 0 && (len(s.fileRequests) != 1 || s.fileRequests[0].Op != tt.op || s.fileRequests[0].User != "user"):
			t.Errorf("%s sent %+v", tt.method, s.fileRequests)
		case tt.op == file.OpWrite:
			if got := <-s.fileRequests[0].content; got != "abc" {
				t.Errorf("wrote %q", got)
			}
		}
	}
}
