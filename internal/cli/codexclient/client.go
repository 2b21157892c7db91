package codexclient

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strconv"
)

// transport carries messages: WebSocket messages, or lines of an exec-server.
type transport interface {
	// read returns the next message, which is valid until the next call.
	read() ([]byte, error)
	write(message []byte) error
	close()
}

// Conn is a connection of a client. It belongs to one goroutine.
type Conn struct {
	Session string // id of the session, once Begin has returned
	t       transport
	id      int
}

// Close ends the connection, and an exec-server that was spawned for it.
func (c *Conn) Close() { c.t.close() }

// Event is a message of the server.
type Event struct {
	Method  string // empty: an answer
	ID      int
	Process string // empty in output, which has a Size
	Size    int    // bytes of output in it
	Result  Result
}

// Result is the members of results that callers need.
type Result struct {
	SessionID string `json:"sessionId"`
	Closed    bool   `json:"closed"`
}

// next returns the next message.
func (c *Conn) next() (Event, error) {
	raw, err := c.t.read()
	if err != nil {
		return Event{}, err
	}
	e := Event{Size: chunkBytes(raw)}
	if e.Size > 0 && bytes.HasPrefix(raw, []byte(`{"method":"process/output"`)) {
		e.Method = "process/output"
		return e, nil
	}
	var m struct {
		ID     int             `json:"id"`
		Method string          `json:"method"`
		Error  json.RawMessage `json:"error"`
		Result Result          `json:"result"`
		Params struct {
			ProcessID string `json:"processId"`
		} `json:"params"`
	}
	if err := json.Unmarshal(raw, &m); err != nil {
		return e, err
	}
	if m.Error != nil {
		return e, fmt.Errorf("the server refused a request: %s", m.Error)
	}
	e.Method, e.ID, e.Process, e.Result = m.Method, m.ID, m.Params.ProcessID, m.Result
	return e, nil
}

// chunkBytes returns the number of bytes in the chunks of a message.
func chunkBytes(raw []byte) (n int) {
	for {
		_, rest, ok := bytes.Cut(raw, []byte(`"chunk":"`))
		if !ok {
			return n
		}
		text, after, _ := bytes.Cut(rest, []byte{'"'})
		n += base64.StdEncoding.DecodedLen(len(text)) - bytes.Count(text[max(0, len(text)-2):], []byte{'='})
		raw = after
	}
}

// Send sends a request and returns its id.
func (c *Conn) Send(method string, params any) (int, error) {
	raw, err := json.Marshal(params)
	if err != nil {
		return 0, err
	}
	c.id++
	msg := append([]byte(`{"id":`), strconv.Itoa(c.id)...)
	msg = append(append(msg, `,"method":"`+method+`","params":`...), raw...)
	return c.id, c.t.write(append(msg, '}'))
}

// Call sends a request and waits for its answer.
func (c *Conn) Call(method string, params any) (Event, error) {
	id, err := c.Send(method, params)
	if err != nil {
		return Event{}, err
	}
	return c.Await(func(e *Event) bool { return e.Method == "" && e.ID == id })
}

// Await returns the first message that is wanted, with the bytes of output up to it.
func (c *Conn) Await(wanted func(*Event) bool) (Event, error) {
	for size := 0; ; {
		e, err := c.next()
		if err != nil {
			return e, err
		}
		if size += e.Size; wanted(&e) {
			e.Size = size
			return e, nil
		}
	}
}

// Begin opens a session, or resumes the one of this id.
func (c *Conn) Begin(resume string) error {
	params := map[string]string{"clientName": "millrace"}
	if resume != "" {
		params["resumeSessionId"] = resume
	}
	e, err := c.Call("initialize", params)
	if err != nil {
		return err
	}
	c.Session = e.Result.SessionID
	return c.t.write([]byte(`{"method":"initialized"}`))
}

// Start starts a command, and returns when the server has answered.
func (c *Conn) Start(process string, tty bool, argv ...string) error {
	_, err := c.Call("process/start", map[string]any{
		"processId": process, "argv": argv, "cwd": "/tmp", "env": map[string]string{"PATH": "/usr/bin:/bin"}, "tty": tty,
	})
	return err
}

// Until waits for an event of a process.
func (c *Conn) Until(process, method string) (Event, error) {
	return c.Await(func(e *Event) bool { return e.Process == process && e.Method == method })
}
