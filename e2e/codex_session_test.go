package e2e_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/fasthttp/websocket"

	"github.com/millrace/millrace/e2e/rig"
)

// codexProcess is what a client knows about one of its processes. Notifications may arrive in
// any order and more than once, as released clients accept them.
type codexProcess struct {
	out     map[string][]byte // by stream
	next    uint64            // the seq that it waits for
	pending map[uint64]codexNote
	exits   int
	code    int
	closed  bool
	wrong   string // what no client accepts
}

func newCodexProcess() *codexProcess {
	return &codexProcess{out: map[string][]byte{}, next: 1, pending: map[uint64]codexNote{}}
}

// note applies a notification, and those that waited for it.
func (p *codexProcess) note(n codexNote) {
	if n.Seq >= p.next {
		p.pending[n.Seq] = n
	}
	p.apply()
}

// apply applies the notifications that follow what is known.
func (p *codexProcess) apply() {
	for {
		n, ok := p.pending[p.next]
		if !ok {
			return
		}
		delete(p.pending, p.next)
		p.next++
		switch n.Method {
		case "process/output":
			p.output(n.Stream, n.Chunk)
		case "process/exited":
			p.exited(n.ExitCode)
		case "process/closed":
			p.closed = true
		}
	}
}

func (p *codexProcess) output(stream string, chunk []byte) {
	if p.closed {
		p.wrong = "output after the end"
	}
	p.out[stream] = append(p.out[stream], chunk...)
}

func (p *codexProcess) exited(code *int) {
	if p.exits++; p.exits > 1 || code == nil {
		p.wrong = fmt.Sprintf("exit %d, code %v", p.exits, code)
		return
	}
	p.code = *code
}

// codexRecovery is the answer of process/read.
type codexRecovery struct {
	Chunks []struct {
		Seq    uint64 `json:"seq"`
		Stream string `json:"stream"`
		Chunk  []byte `json:"chunk"`
	} `json:"chunks"`
	NextSeq  uint64 `json:"nextSeq"`
	Exited   bool   `json:"exited"`
	ExitCode *int   `json:"exitCode"`
	Closed   bool   `json:"closed"`
}

// page applies the answer of a read after the last seq.
func (p *codexProcess) page(r *codexRecovery) {
	for _, c := range r.Chunks {
		p.note(codexNote{Method: "process/output", Seq: c.Seq, Stream: c.Stream, Chunk: c.Chunk})
	}
	if r.Exited && p.exits == 0 {
		p.exited(r.ExitCode)
	}
	if r.NextSeq > p.next {
		if missing := r.NextSeq - p.next; missing > 2 || !r.Exited {
			p.wrong = fmt.Sprintf("the page ends at %d, its chunks at %d", r.NextSeq, p.next)
		}
		for seq := p.next; seq < r.NextSeq; seq++ {
			delete(p.pending, seq) // what the page has said already
		}
		p.next = r.NextSeq
	}
	p.closed = p.closed || r.Closed
	p.apply()
}

// codexClient is a client that resumes its session whenever its connection ends, as released
// ones do. It belongs to one goroutine.
type codexClient struct {
	t       testing.TB
	apis    []*rig.API
	path    string
	session string
	turn    int // number of connections
	procs   map[string]*codexProcess

	ws      *websocket.Conn
	answers map[string]codexMessage
	nextID  int
	frames  int // received on this connection
	cutAt   int // number of frames after which the connection is cut; 0: never
}

func newCodexClient(t testing.TB, path string, apis ...*rig.API) *codexClient {
	return &codexClient{t: t, apis: apis, path: path, procs: map[string]*codexProcess{}}
}

// codexCutError reports that the connection has ended.
type codexCutError struct{ error }

// connect connects, with the session that it has, until a gateway accepts it. It returns an error
// if the session is unknown. cut returns after how many frames a connection is cut.
func (c *codexClient) connect(cut func() int) error {
	c.t.Helper()
	c.drop()
	var last error
	for began := time.Now(); time.Since(began) < codexTimeout; {
		ctx, cancel := context.WithTimeout(c.t.Context(), codexTimeout)
		a := c.apis[c.turn%len(c.apis)]
		c.turn++
		ws, status, err := tryCodex(ctx, a, c.path, "Authorization", "Bearer "+a.Key)
		cancel()
		if err != nil {
			if status == http.StatusUnauthorized || status == http.StatusBadRequest {
				return fmt.Errorf("%d: %w", status, err)
			}
			last = err
			<-time.After(codexPause)
			continue
		}
		c.ws, c.answers, c.frames, c.cutAt = ws, map[string]codexMessage{}, 0, cut()
		err = c.begin()
		var refused *codexError
		switch {
		case err == nil:
			return nil
		case errors.As(err, &refused) && refused.Code != -32010:
			return err
		}
		last = err
		c.drop()
		<-time.After(codexPause)
	}
	return fmt.Errorf("no connection within %v: %w", codexTimeout, last)
}

// codexPause is the time between two attempts to connect.
const codexPause = 20 * time.Millisecond

// drop ends the connection without a word.
func (c *codexClient) drop() {
	if c.ws != nil {
		c.ws.NetConn().Close()
		c.ws = nil
	}
}

// begin is the handshake, and the recovery of processes that have not ended.
func (c *codexClient) begin() error {
	params := codexArgs{"clientName": "e2e"}
	if c.session != "" {
		params["resumeSessionId"] = c.session
	}
	var made struct {
		SessionID string `json:"sessionId"`
	}
	if err := c.call("initialize", params, &made); err != nil {
		return err
	}
	if c.session != "" && made.SessionID != c.session {
		return fmt.Errorf("session %q instead of %q", made.SessionID, c.session)
	}
	c.session = made.SessionID
	if err := c.send(`{"method":"initialized"}`); err != nil {
		return err
	}
	for id, p := range c.procs {
		if p.closed {
			continue
		}
		var page codexRecovery
		err := c.call("process/read", codexArgs{"processId": id, "afterSeq": p.next - 1, "maxBytes": nil, "waitMs": 0}, &page)
		if err != nil {
			return err
		}
		p.page(&page)
	}
	return nil
}

func (c *codexClient) send(raw string) error {
	if c.ws == nil {
		return codexCutError{websocket.ErrCloseSent}
	}
	return c.ws.WriteMessage(websocket.TextMessage, []byte(raw))
}

// request sends a request and returns its id.
func (c *codexClient) request(method string, params any) (string, error) {
	c.nextID++
	raw, err := json.Marshal(codexArgs{"id": c.nextID, "method": method, "params": params})
	if err != nil {
		c.t.Fatal(err)
	}
	return fmt.Sprint(c.nextID), c.send(string(raw))
}

// receive reads one frame.
func (c *codexClient) receive() error {
	if c.ws == nil || c.cutAt > 0 && c.frames >= c.cutAt {
		c.drop()
		return codexCutError{fmt.Errorf("cut after %d frames", c.frames)}
	}
	c.ws.SetReadDeadline(time.Now().Add(codexTimeout))
	_, raw, err := c.ws.ReadMessage()
	if err != nil {
		return codexCutError{err}
	}
	c.frames++
	var m codexMessage
	if err := json.Unmarshal(raw, &m); err != nil {
		c.t.Fatalf("not a message: %.200q", raw)
	}
	if m.Method == "" {
		c.answers[string(m.ID)] = m
		return nil
	}
	m.Params.Method = m.Method
	if p := c.procs[m.Params.ProcessID]; p != nil {
		p.note(m.Params)
	}
	return nil
}

// call sends a request and waits for its answer.
func (c *codexClient) call(method string, params, into any) error {
	id, err := c.request(method, params)
	for err == nil {
		if m, ok := c.answers[id]; ok {
			delete(c.answers, id)
			if m.Error != nil {
				return m.Error
			}
			if into == nil {
				return nil
			}
			return json.Unmarshal(m.Result, into)
		}
		err = c.receive()
	}
	return err
}

// track expects the notifications of a process.
func (c *codexClient) track(id string) *codexProcess {
	c.procs[id] = newCodexProcess()
	return c.procs[id]
}

// untilClosed receives until all processes have ended, and resumes whenever the connection ends.
func (c *codexClient) untilClosed(cut func() int) {
	c.t.Helper()
	known := uint64(0)
	for began := time.Now(); ; {
		open, sum := 0, uint64(0)
		for id, p := range c.procs {
			if p.wrong != "" {
				c.t.Fatalf("process %s: %s", id, p.wrong)
			}
			if sum += p.next; !p.closed {
				open++
			}
		}
		if sum > known {
			known, began = sum, time.Now()
		} else if time.Since(began) > codexEndTimeout {
			c.t.Fatalf("%d processes have no event for %v", open, codexEndTimeout)
		}
		if open == 0 {
			return
		}
		if c.receive() == nil {
			continue
		}
		if err := c.connect(cut); err != nil {
			c.t.Fatal(err)
		}
	}
}

// receiveUntil receives until a condition holds.
func (c *codexClient) receiveUntil(done func() bool) error {
	for !done() {
		if err := c.receive(); err != nil {
			return err
		}
	}
	return nil
}

// codexEndTimeout is how long untilClosed waits for an event of a process.
const codexEndTimeout = 2 * time.Minute

// never is for connections that are not cut.
func never() int { return 0 }
