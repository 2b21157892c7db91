package ndjson

import (
	"time"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/process"
	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/services/gateway/internal/record"
	"github.com/millrace/millrace/services/gateway/internal/textenc"
)

const (
	// DefaultTimeout is the timeout of a command without timeout_ms.
	DefaultTimeout = 60 * time.Second
	// maxKey is the maximum length of an Idempotency-Key.
	maxKey = 255
)

// command is the body of POST /commands.
type command struct {
	Cmd       string            `json:"cmd"`
	Args      *[]string         `json:"args"` // present: cmd is executed with them; absent: a login shell runs cmd
	Env       map[string]string `json:"env"`
	Envs      map[string]string `json:"envs"` // E2B's name for env
	Cwd       string            `json:"cwd"`
	User      string            `json:"user"`
	Stdin     bool              `json:"stdin"`
	PTY       *textenc.Size     `json:"pty"`
	TimeoutMS *int64            `json:"timeout_ms"` // absent: DefaultTimeout; 0: none
	Tag       *string           `json:"tag"`
	Record    string            `json:"record"` // full, meta or none; empty: as the sandbox
}

// parseCommand parses a command; its errors are Invalid.
func parseCommand(body []byte) (process.Spec, error) {
	var c command
	if err := record.Decode(body, &c); err != nil {
		return process.Spec{}, err
	}
	s := process.Spec{
		Cmd: "/bin/bash", Args: []string{"-l", "-c", c.Cmd},
		Env: c.Env, Cwd: c.Cwd, User: c.User, Stdin: c.Stdin, Tag: c.Tag,
	}
	switch {
	case c.Cmd == "":
		return s, invalid("cmd is required")
	case c.Env != nil && c.Envs != nil:
		return s, invalid("env and envs are mutually exclusive")
	}
	var err error
	if s.Record, err = sandbox.ParsePolicy(c.Record); err != nil {
		return s, err
	}
	if s.Timeout, err = record.Timeout(c.TimeoutMS, DefaultTimeout); err != nil {
		return s, err
	}
	if c.Args != nil {
		s.Cmd, s.Args = c.Cmd, *c.Args
	}
	if c.Env == nil {
		s.Env = c.Envs
	}
	if c.PTY != nil {
		s.PTY = &process.Size{Cols: c.PTY.Cols, Rows: c.PTY.Rows}
	}
	return s, s.Validate()
}

// parseKey checks an Idempotency-Key: at most 255 bytes without control characters.
func parseKey(s string) error {
	if len(s) > maxKey {
		return invalid("Idempotency-Key is too long")
	}
	for i := range len(s) {
		if s[i] < ' ' || s[i] == 0x7f {
			return invalid("Idempotency-Key has a control character")
		}
	}
	return nil
}

func invalid(msg string) error { return kind.New(kind.Invalid, "run", "", msg) }
