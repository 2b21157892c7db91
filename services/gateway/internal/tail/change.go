package tail

import (
	"encoding/json"
	"time"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/services/gateway/internal/textenc"
)

// change is a sandbox's event as JSON. Its environment is never shown: it may
// hold secrets.
type change struct {
	Seq       uint64            `json:"seq"`
	Time      time.Time         `json:"time"`
	Type      string            `json:"type"`
	Template  string            `json:"template,omitempty"`
	Driver    string            `json:"driver,omitempty"`
	Metadata  map[string]string `json:"metadata,omitempty"`
	Alias     string            `json:"alias,omitempty"`
	Deadline  *time.Time        `json:"deadline,omitempty"`
	Host      string            `json:"host,omitempty"`
	Epoch     uint64            `json:"epoch,omitempty"`
	ErrorCode string            `json:"error_code,omitempty"`
	Reason    string            `json:"reason,omitempty"`
	Cause     string            `json:"cause,omitempty"`
	Message   string            `json:"message,omitempty"`
}

func appendChange(dst []byte, e *sandbox.Event) []byte {
	out := change{Seq: e.Seq, Time: e.Time.UTC(), Type: e.Type()}
	switch b := e.Body.(type) {
	case sandbox.Requested:
		out.Template, out.Driver, out.Metadata, out.Alias, out.Deadline = b.Template, b.Driver, b.Metadata, b.Alias, known(b.Deadline)
	case sandbox.Placed:
		out.Host, out.Epoch = b.Host, b.Epoch
	case sandbox.Refused:
		out.ErrorCode, out.Reason = textenc.Code(kind.Kind(b.Kind)), b.Reason
	case sandbox.Running:
		out.Driver = b.Driver
	case sandbox.DeadlineSet:
		out.Deadline = known(b.Deadline)
	case sandbox.Stopping:
		out.Cause = b.Cause
	case sandbox.Destroyed:
		out.Cause = b.Cause
	case sandbox.Lost:
		out.Reason = b.Reason
	case sandbox.Failed:
		out.Message = b.Message
	}
	raw, err := json.Marshal(out)
	if err != nil { // nothing in it can fail but a year past 9999
		return append(dst, `{"type":"unknown"}`...)
	}
	return append(dst, raw...)
}

func known(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	u := t.UTC()
	return &u
}
