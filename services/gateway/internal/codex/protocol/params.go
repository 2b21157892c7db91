package protocol

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"slices"

	"github.com/millrace/millrace/services/gateway/internal/codex/fileuri"
	"github.com/millrace/millrace/services/gateway/internal/codex/jsonrpc"
)

// Limits of parameters.
const (
	MaxProcessID = 4 << 10 // bytes; it is repeated in every notification
	MaxHandleID  = 4 << 10
	MaxBlock     = 1 << 20 // bytes of fs/readBlock and fs/writeBlock
	MaxSession   = 256     // bytes of a session's id
	maxName      = 256     // bytes of a client's name
	maxWriteID   = 4 << 10
)

// decode decodes parameters and requires members to be present and not null.
func decode(raw []byte, into any, required ...string) error {
	if len(raw) == 0 || raw[0] != '{' {
		return bad("params must be an object")
	}
	seen := make([]bool, len(required))
	for quoted, value := range jsonrpc.Members(raw) {
		i := slices.Index(required, string(quoted[1:len(quoted)-1]))
		switch {
		case i < 0:
			continue
		case seen[i]:
			return jsonrpc.Errorf(jsonrpc.CodeInvalidParams, "duplicate field `%s`", required[i])
		case string(value) == "null":
			return jsonrpc.Errorf(jsonrpc.CodeInvalidParams, "field `%s` must not be null", required[i])
		}
		seen[i] = true
	}
	if i := slices.Index(seen, false); i >= 0 {
		return jsonrpc.Errorf(jsonrpc.CodeInvalidParams, "missing field `%s`", required[i])
	}
	err := json.Unmarshal(raw, into)
	var wrong *json.UnmarshalTypeError
	var own *jsonrpc.Error
	switch {
	case errors.As(err, &own):
		return err
	case errors.As(err, &wrong):
		return jsonrpc.Errorf(jsonrpc.CodeInvalidParams, "field `%s` must not be a %s", wrong.Field, wrong.Value)
	case err != nil:
		return bad("invalid params")
	}
	return nil
}

func bad(msg string) error { return &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: msg} }

// Bytes is data in base64.
type Bytes []byte

// UnmarshalJSON decodes standard base64 with padding and without line ends.
func (b *Bytes) UnmarshalJSON(raw []byte) error {
	var s string
	if err := json.Unmarshal(raw, &s); err != nil {
		return bad("data must be a base64 string")
	}
	data, err := base64.StdEncoding.Strict().DecodeString(s)
	if err != nil || base64.StdEncoding.EncodedLen(len(data)) != len(s) {
		return bad("data is not valid base64")
	}
	*b = data
	return nil
}

// Path is a path of a client, and the form in which it was written.
type Path struct {
	Name string // absolute and clean
	Form fileuri.Form
}

// UnmarshalJSON decodes a file URI or an absolute path.
func (p *Path) UnmarshalJSON(raw []byte) error {
	var s string
	if err := json.Unmarshal(raw, &s); err != nil {
		return bad("a path must be a string")
	}
	name, form, err := fileuri.Parse(s)
	*p = Path{name, form}
	return err
}

// InitializeParams are the parameters of initialize.
type InitializeParams struct {
	ClientName      string  `json:"clientName"`
	ResumeSessionID *string `json:"resumeSessionId"`
}

// ParseInitialize decodes and checks parameters.
func ParseInitialize(raw []byte) (InitializeParams, error) {
	var p InitializeParams
	if err := decode(raw, &p, "clientName"); err != nil {
		return p, err
	}
	switch {
	case len(p.ClientName) > maxName:
		return p, bad("clientName is too long")
	case p.ResumeSessionID != nil && len(*p.ResumeSessionID) > MaxSession:
		return p, bad("resumeSessionId is too long")
	}
	return p, nil
}

// StartParams are the parameters of process/start.
type StartParams struct {
	ProcessID string            `json:"processId"`
	Argv      []string          `json:"argv"`
	Cwd       Path              `json:"cwd"`
	EnvPolicy *EnvPolicy        `json:"envPolicy"`
	Env       map[string]string `json:"env"`
	TTY       bool              `json:"tty"`
	PipeStdin bool              `json:"pipeStdin"`
	Arg0      *string           `json:"arg0"`
	Sandbox   *Sandbox          `json:"sandbox"`

	EnforceManagedNetwork bool            `json:"enforceManagedNetwork"`
	NetworkProxy          json.RawMessage `json:"networkProxy"`
}

// ParseStart decodes and checks parameters.
func ParseStart(raw []byte) (StartParams, error) {
	var p StartParams
	if err := decode(raw, &p, "processId", "argv", "cwd", "env", "tty"); err != nil {
		return p, err
	}
	if err := checkProcessID(p.ProcessID); err != nil {
		return p, err
	}
	if len(p.Argv) == 0 {
		return p, bad("argv must not be empty")
	}
	if p.Argv[0] == "" {
		return p, bad("argv[0] must not be empty")
	}
	if err := p.unwrap(); err != nil {
		return p, err
	}
	// A network that the client manages must not become one that nothing manages.
	if p.EnforceManagedNetwork || len(p.NetworkProxy) > 0 && string(p.NetworkProxy) != "null" {
		return p, bad("a managed network is not offered: environmentInfo does not advertise networkProxyLaunch")
	}
	return p, nil
}

func checkProcessID(id string) error {
	if len(id) > MaxProcessID {
		return jsonrpc.Errorf(jsonrpc.CodeInvalidParams, "processId of %d bytes, the limit is %d", len(id), MaxProcessID)
	}
	return nil
}

// ReadParams are the parameters of process/read. A nil field is absent.
type ReadParams struct {
	ProcessID string  `json:"processId"`
	AfterSeq  *uint64 `json:"afterSeq"`
	MaxBytes  *uint64 `json:"maxBytes"`
	WaitMS    *uint64 `json:"waitMs"`
}

// ParseRead decodes and checks parameters.
func ParseRead(raw []byte) (ReadParams, error) {
	var p ReadParams
	if err := decode(raw, &p, "processId"); err != nil {
		return p, err
	}
	return p, checkProcessID(p.ProcessID)
}

// WriteParams are the parameters of process/write. WriteID is nil for clients before 0.145.
type WriteParams struct {
	ProcessID string  `json:"processId"`
	Chunk     Bytes   `json:"chunk"`
	WriteID   *string `json:"writeId"`
}

// ParseWrite decodes and checks parameters.
func ParseWrite(raw []byte) (WriteParams, error) {
	var p WriteParams
	if err := decode(raw, &p, "processId", "chunk"); err != nil {
		return p, err
	}
	switch {
	case p.WriteID != nil && *p.WriteID == "":
		return p, bad("writeId must not be empty")
	case p.WriteID != nil && len(*p.WriteID) > maxWriteID:
		return p, bad("writeId is too long")
	}
	return p, checkProcessID(p.ProcessID)
}

// SignalParams are the parameters of process/signal. The only signal is interrupt.
type SignalParams struct {
	ProcessID string `json:"processId"`
	Signal    string `json:"signal"`
}

// ParseSignal decodes and checks parameters.
func ParseSignal(raw []byte) (SignalParams, error) {
	var p SignalParams
	if err := decode(raw, &p, "processId", "signal"); err != nil {
		return p, err
	}
	if p.Signal != "interrupt" {
		return p, bad("unknown signal: want interrupt")
	}
	return p, checkProcessID(p.ProcessID)
}

// TerminateParams are the parameters of process/terminate.
type TerminateParams struct {
	ProcessID string `json:"processId"`
}

// ParseTerminate decodes and checks parameters.
func ParseTerminate(raw []byte) (TerminateParams, error) {
	var p TerminateParams
	if err := decode(raw, &p, "processId"); err != nil {
		return p, err
	}
	return p, checkProcessID(p.ProcessID)
}
