package rig

import (
	"bufio"
	"crypto/tls"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"
)

// Flags of an envelope.
const (
	FlagCompressed = 0x01
	FlagEnd        = 0x02
)

// Envelope is one message of a Connect stream on the wire.
type Envelope struct {
	Flags   byte
	Payload []byte
	At      time.Time
}

// Seal returns the bytes of an envelope.
func Seal(flags byte, payload []byte) []byte {
	out := binary.BigEndian.AppendUint32([]byte{flags}, uint32(len(payload)))
	return append(out, payload...)
}

// Raw is a Connect stream on a socket of its own, parsed by hand.
type Raw struct {
	Status int
	Header http.Header
	conn   net.Conn
	body   *bufio.Reader
	resp   *http.Response
}

// Request is a Connect request, written to a socket byte by byte.
type Request struct {
	Path    string
	Headers []string // names and values in turn; override the default ones
	Body    []byte   // bytes on the wire
	Chunked bool     // use chunks instead of Content-Length
}

// Message returns the request of a JSON stream, with one envelope.
func Message(path string, msg any, headers ...string) Request {
	raw, err := json.Marshal(msg)
	if err != nil {
		panic(err)
	}
	return Request{Path: path, Body: Seal(0, raw), Headers: append([]string{
		"Content-Type", "application/connect+json", "Connect-Protocol-Version", "1",
	}, headers...)}
}

// Dial sends a request on a new socket and reads the head of the response.
func (a *API) Dial(t testing.TB, req Request) *Raw {
	t.Helper()
	r, err := a.dial(req)
	if err != nil {
		t.Fatalf("%s: %v", req.Path, err)
	}
	t.Cleanup(r.Close)
	return r
}

func (a *API) dial(req Request) (*Raw, error) {
	u, err := url.Parse(a.URL)
	if err != nil {
		return nil, err
	}
	conn, err := net.DialTimeout("tcp", u.Host, 5*time.Second)
	if err != nil {
		return nil, err
	}
	if cfg := a.TLS(); cfg != nil {
		cfg.ServerName = u.Hostname()
		conn = tls.Client(conn, cfg)
	}
	conn.SetDeadline(time.Now().Add(streamTimeout))
	if _, err := conn.Write(a.head(u.Host, &req)); err != nil {
		conn.Close()
		return nil, err
	}
	resp, err := http.ReadResponse(bufio.NewReaderSize(conn, 64<<10), &http.Request{Method: http.MethodPost})
	if err != nil {
		conn.Close()
		return nil, err
	}
	return &Raw{Status: resp.StatusCode, Header: resp.Header, conn: conn, resp: resp, body: bufio.NewReaderSize(resp.Body, 64<<10)}, nil
}

// head returns the request's bytes, head and body.
func (a *API) head(host string, req *Request) []byte {
	h := map[string]string{"Host": host, "X-Api-Key": a.Key}
	order := []string{"Host", "X-Api-Key"}
	for i := 0; i+1 < len(req.Headers); i += 2 {
		if _, ok := h[req.Headers[i]]; !ok {
			order = append(order, req.Headers[i])
		}
		h[req.Headers[i]] = req.Headers[i+1]
	}
	var b strings.Builder
	fmt.Fprintf(&b, "POST %s HTTP/1.1\r\n", req.Path)
	for _, k := range order {
		fmt.Fprintf(&b, "%s: %s\r\n", k, h[k])
	}
	if req.Chunked {
		b.WriteString("Transfer-Encoding: chunked\r\n\r\n")
		for rest := req.Body; len(rest) > 0; {
			n := min(7, len(rest)) // splits the envelope's header
			fmt.Fprintf(&b, "%x\r\n%s\r\n", n, rest[:n])
			rest = rest[n:]
		}
		b.WriteString("0\r\n\r\n")
	} else {
		fmt.Fprintf(&b, "Content-Length: %d\r\n\r\n%s", len(req.Body), req.Body)
	}
	return []byte(b.String())
}

// Close closes the stream's socket.
func (r *Raw) Close() { r.conn.Close() }

// Conn returns the socket.
func (r *Raw) Conn() net.Conn { return r.conn }

// Deadline bounds later reads; 0 is the default bound of streams.
func (r *Raw) Deadline(d time.Duration) {
	if d == 0 {
		d = streamTimeout
	}
	r.conn.SetReadDeadline(time.Now().Add(d))
}

// Rest reads the rest of the response.
func (r *Raw) Rest(t testing.TB) []byte {
	t.Helper()
	b, err := io.ReadAll(r.body)
	if err != nil {
		t.Fatalf("read: %v", err)
	}
	return b
}

// Next reads one envelope. It returns io.EOF at the end of the response.
func (r *Raw) Next() (Envelope, error) {
	var h [5]byte
	if _, err := io.ReadFull(r.body, h[:]); err != nil {
		return Envelope{}, err
	}
	e := Envelope{Flags: h[0], At: time.Now()}
	n := binary.BigEndian.Uint32(h[1:])
	e.Payload = make([]byte, n)
	if _, err := io.ReadFull(r.body, e.Payload); err != nil {
		return e, fmt.Errorf("%d bytes of payload: %w", n, errors.Join(err, io.ErrUnexpectedEOF))
	}
	return e, nil
}

// Event is an event of process.Process as JSON.
type Event struct {
	Start     *struct{ PID uint32 }                 `json:"start"`
	Data      *struct{ Stdout, Stderr, PTY []byte } `json:"data"`
	End       *EndEvent                             `json:"end"`
	Keepalive *struct{}                             `json:"keepalive"`
}

// EndEvent is how a process ended.
type EndEvent struct {
	ExitCode int    `json:"exitCode"`
	Exited   bool   `json:"exited"`
	Status   string `json:"status"`
	Error    string `json:"error"`
}

// Output returns the bytes of a data event and the name of their stream.
func (e *Event) Output() (stream string, data []byte) {
	switch d := e.Data; {
	case d == nil:
		return "", nil
	case d.Stdout != nil:
		return "stdout", d.Stdout
	case d.Stderr != nil:
		return "stderr", d.Stderr
	default:
		return "pty", d.PTY
	}
}

// EventMessage is one message of a stream, decoded.
type EventMessage struct {
	Envelope
	Keys  []string // of the event: exactly one of start, data, end, keepalive
	Event Event
	Seq   uint64
}

// Run is a whole stream.
type Run struct {
	Messages []EventMessage
	PID      uint32
	Process  string // id from the start event
	Out      map[string][]byte
	End      *EndEvent
	Error    *ConnectError // error in the last envelope
	Last     Envelope      // last envelope
}

// ConnectError is the error of a stream or a call.
type ConnectError struct {
	Code    string `json:"code"`
	Message string `json:"message"`
}

// Stdout returns the run's standard output.
func (r *Run) Stdout() string { return string(r.Out["stdout"]) }

// Decode decodes an envelope other than the last.
func Decode(e Envelope) (EventMessage, error) {
	m := EventMessage{Envelope: e}
	var outer struct {
		Event map[string]json.RawMessage `json:"event"`
		Seq   json.Number                `json:"seq"`
	}
	if err := json.Unmarshal(e.Payload, &outer); err != nil {
		return m, fmt.Errorf("payload %q: %w", e.Payload, err)
	}
	for k := range outer.Event {
		m.Keys = append(m.Keys, k)
	}
	seq, _ := outer.Seq.Int64()
	m.Seq = uint64(seq)
	var inner struct {
		Event Event `json:"event"`
	}
	err := json.Unmarshal(e.Payload, &inner)
	m.Event = inner.Event
	return m, err
}

// All reads a stream to its end and checks the rules of every stream: start comes first,
// each message is one kind of event, and end is followed only by the last envelope, which
// comes exactly once.
func (r *Raw) All(t testing.TB) *Run {
	t.Helper()
	run := &Run{Out: map[string][]byte{}}
	for {
		e, err := r.Next()
		if err != nil {
			t.Fatalf("after %d messages: %v", len(run.Messages), err)
		}
		if e.Flags&FlagEnd != 0 {
			run.Last = e
			break
		}
		run.take(t, e)
	}
	var words struct {
		Error *ConnectError `json:"error"`
	}
	if err := json.Unmarshal(run.Last.Payload, &words); err != nil {
		t.Fatalf("last envelope %q: %v", run.Last.Payload, err)
	}
	run.Error = words.Error
	if e, err := r.Next(); !errors.Is(err, io.EOF) {
		t.Fatalf("after the end of the stream: %v %q (%v)", e.Flags, e.Payload, err)
	}
	return run
}

func (r *Run) take(t testing.TB, e Envelope) {
	t.Helper()
	m, err := Decode(e)
	if err != nil {
		t.Fatal(err)
	}
	if e.Flags != 0 || len(m.Keys) != 1 {
		t.Fatalf("flags %#x, event of %v: %s", e.Flags, m.Keys, e.Payload)
	}
	if r.End != nil {
		t.Fatalf("after end: %s", e.Payload)
	}
	switch {
	case m.Event.Start != nil:
		if r.PID != 0 {
			t.Fatalf("a second start: %s", e.Payload)
		}
		r.PID = m.Event.Start.PID
		r.Process = ProcessOf(e.Payload)
	case r.PID == 0 && m.Keys[0] != "keepalive":
		t.Fatalf("before start: %s", e.Payload)
	case m.Event.End != nil:
		r.End = m.Event.End
	case m.Event.Data != nil:
		if n := dataKeys(e.Payload); n != 1 {
			t.Fatalf("data of %d streams: %s", n, e.Payload)
		}
		stream, data := m.Event.Output()
		r.Out[stream] = append(r.Out[stream], data...)
	}
	r.Messages = append(r.Messages, m)
}

func dataKeys(payload []byte) int {
	var v struct {
		Event struct {
			Data map[string]string `json:"data"`
		} `json:"event"`
	}
	if err := json.Unmarshal(payload, &v); err != nil {
		return -1
	}
	for _, s := range v.Event.Data {
		if _, err := base64.StdEncoding.DecodeString(s); err != nil {
			return -1
		}
	}
	return len(v.Event.Data)
}

// ProcessOf finds the process's id anywhere in a start event.
func ProcessOf(payload []byte) string {
	var v struct {
		Process string `json:"process"`
		Event   struct {
			Process string `json:"process"`
			Start   struct {
				Process string `json:"process"`
			} `json:"start"`
		} `json:"event"`
	}
	if json.Unmarshal(payload, &v) != nil {
		return ""
	}
	for _, s := range []string{v.Process, v.Event.Process, v.Event.Start.Process} {
		if s != "" {
			return s
		}
	}
	return ""
}

// StartStream starts `bash -l -c cmd` in a sandbox as the SDKs do, on a new socket.
func (a *API) StartStream(t testing.TB, sandbox, cmd string, headers ...string) *Raw {
	t.Helper()
	return a.StartSpec(t, sandbox, map[string]any{
		"process": map[string]any{"cmd": "/bin/bash", "args": []string{"-l", "-c", cmd}}, "stdin": false,
	}, headers...)
}

// StartSpec sends a StartRequest on a new socket.
func (a *API) StartSpec(t testing.TB, sandbox string, req any, headers ...string) *Raw {
	t.Helper()
	return a.Dial(t, Message("/process.Process/Start", req, append([]string{"E2b-Sandbox-Id", sandbox}, headers...)...))
}

// ConnectTo attaches to a process of a sandbox by its pid.
func (a *API) ConnectTo(t testing.TB, sandbox string, pid uint32, headers ...string) *Raw {
	t.Helper()
	msg := map[string]any{"process": map[string]any{"pid": pid}}
	return a.Dial(t, Message("/process.Process/Connect", msg, append([]string{"E2b-Sandbox-Id", sandbox}, headers...)...))
}

// RPC makes a unary call with JSON.
func (a *API) RPC(t testing.TB, sandbox, method string, msg any, headers ...string) Answer {
	t.Helper()
	return a.Do(t, http.MethodPost, method, msg, append([]string{"E2b-Sandbox-Id", sandbox, "Connect-Protocol-Version", "1"}, headers...)...)
}

// Started reads up to the start event and returns it.
func (r *Raw) Started(t testing.TB) EventMessage {
	t.Helper()
	for {
		e, err := r.Next()
		if err != nil {
			t.Fatalf("before start: %v", err)
		}
		if e.Flags != 0 {
			t.Fatalf("before start: the end of the stream: %s", e.Payload)
		}
		m, err := Decode(e)
		if err != nil {
			t.Fatal(err)
		}
		if m.Event.Start != nil {
			return m
		}
	}
}
