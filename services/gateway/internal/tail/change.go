package tail

import (
	"encoding/json"
	"time"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/services/gateway/internal/textenc"
)

// change is a sandbox's event as JSON. Its environment is omitted because it may contain
// secrets.
type change struct {
	Seq       uint64            `json:"seq"`
	Time      time.Time         `json:"time"`
	Type      string            `json:"type"`
	Template  string            `json:"template,omitempty"`
	Driver    string            `json:"driver,omitempty"`
	Metadata  map[string]string `json:"metadata,omitempty"`
	Alias     string            `json:"alias,omitempty"`
	Deadline  *time.Time        `json:"deadline,omitempty"`
	HardEnd   *time.Time        `json:"hard_end_at,omitempty"`
	Timeout   int64             `json:"timeout_ms,omitempty"` // counted from the start of the sandbox
	Host      string            `json:"host,omitempty"`
	Epoch     uint64            `json:"epoch,omitempty"`
	ErrorCode string            `json:"error_code,omitempty"`
	Reason    string            `json:"reason,omitempty"`
	Cause     string            `json:"cause,omitempty"`
	Message   string            `json:"message,omitempty"`
	Isolation string            `json:"isolation,omitempty"`
	Snapshot  string            `json:"snapshot,omitempty"`
	From      string            `json:"forked_from,omitempty"`
	Memory    bool              `json:"memory,omitempty"`
	network
	mount
}

// network is what an event says about the network of a sandbox.
type network struct {
	Internet *bool    `json:"internet,omitempty"`
	Allow    []string `json:"allow,omitempty"`
	Deny     []string `json:"deny,omitempty"`
	Sent     uint64   `json:"sent,omitempty"`
	Received uint64   `json:"received,omitempty"`
}

// mount is what an event says about the workspace in a sandbox.
type mount struct {
	Gateway  string     `json:"gateway,omitempty"`
	Unstored []string   `json:"unstored,omitempty"`       // some of the paths
	Count    uint32     `json:"unstored_count,omitempty"` // of all
	Stored   *time.Time `json:"stored_at,omitempty"`
}

func appendChange(dst []byte, e *sandbox.Event) []byte {
	out := change{Seq: e.Seq, Time: e.Time.UTC(), Type: e.Type()}
	switch b := e.Body.(type) {
	case sandbox.Requested:
		out.Template, out.Driver, out.Metadata, out.Alias, out.Timeout = b.Template, b.Driver, b.Metadata, b.Alias, b.Lifetime.Milliseconds()
		out.Isolation, out.Snapshot, out.From = string(b.Isolation), string(b.From), string(b.FromSandbox)
		out.HardEnd = textenc.OptionalTime(b.HardEnd)
	case sandbox.Queued:
		out.Reason = b.Reason
	case sandbox.Placed:
		out.Host, out.Epoch, out.Driver = b.Host, b.Epoch, b.Driver
	case sandbox.Refused:
		out.ErrorCode, out.Reason = textenc.Code(kind.Kind(b.Kind)), b.Reason
	case sandbox.Running:
		out.Driver, out.Isolation = b.Driver, string(b.Isolation)
	case sandbox.DeadlineSet:
		out.Deadline = textenc.OptionalTime(b.Deadline)
	case sandbox.Pausing:
		out.Cause = b.Cause
	case sandbox.Paused:
		out.Message = b.Message
	case sandbox.Resuming:
		out.Cause, out.Timeout = b.Cause, b.Lifetime.Milliseconds()
	case sandbox.Resumed:
		out.Message = b.Message
	case sandbox.Snapshotted:
		out.Snapshot, out.Memory = string(b.Snapshot), b.Memory
	case sandbox.NetworkSet:
		out.Internet, out.Allow, out.Deny = &b.Network.Internet, b.Network.Allow, b.Network.Deny
	case sandbox.NetworkUsed:
		out.Sent, out.Received = b.Sent, b.Received
	case sandbox.Warned:
		out.HardEnd = textenc.OptionalTime(b.HardEnd)
	case sandbox.Mounted:
		out.Gateway = b.Gateway
	case sandbox.Unmounted:
		out.Unstored, out.Count, out.Stored = b.Unstored, b.Count, textenc.OptionalTime(b.Stored)
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
	if err != nil { // only a year past 9999 can fail
		return append(dst, `{"type":"unknown"}`...)
	}
	return append(dst, raw...)
}
