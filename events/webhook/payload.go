package webhook

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"time"
)

// The headers of a delivery.
const (
	HeaderWebhook   = "E2b-Webhook-Id"
	HeaderDelivery  = "E2b-Delivery-Id"
	HeaderVersion   = "E2b-Signature-Version"
	HeaderSignature = "E2b-Signature"

	SignatureVersion = "v1"
	payloadVersion   = "v2"
)

// Sign returns the signature of a payload: the SHA-256 of the secret followed by the
// payload, in base64 without padding.
func Sign(secret string, payload []byte) string {
	h := sha256.New()
	h.Write([]byte(secret))
	h.Write(payload)
	return base64.RawStdEncoding.EncodeToString(h.Sum(nil))
}

// Data is the event_data of an event.
type Data struct {
	Metadata  map[string]string `json:"sandbox_metadata,omitempty"`
	Execution *executionBody    `json:"execution,omitempty"`
	Timeout   *time.Time        `json:"set_timeout,omitempty"`
	Snapshot  string            `json:"snapshot_id,omitempty"`
	Reason    string            `json:"reason,omitempty"`
	Process   *processBody      `json:"process,omitempty"`
}

type executionBody struct {
	StartedAt     time.Time `json:"started_at"`
	VCPUCount     uint32    `json:"vcpu_count"`
	MemoryMB      uint32    `json:"memory_mb"`
	ExecutionTime int64     `json:"execution_time"` // milliseconds
}

// Data returns the event_data of the event, or nil if it is empty.
func (e *Event) Data() *Data {
	d := Data{Metadata: e.Metadata, Snapshot: e.Snapshot, Reason: e.Reason}
	if !e.Deadline.IsZero() {
		at := e.Deadline.UTC()
		d.Timeout = &at
	}
	if e.Ran != nil {
		d.Execution = &executionBody{
			StartedAt: e.Ran.Started.UTC(), VCPUCount: e.Ran.CPUs, MemoryMB: e.Ran.MemoryMiB,
			ExecutionTime: e.Ran.Took.Milliseconds(),
		}
	}
	if e.Process != nil {
		d.Process = e.Process.body()
	}
	if d.Process == nil && len(d.Metadata) == 0 && d.Execution == nil && d.Timeout == nil && d.Snapshot == "" && d.Reason == "" {
		return nil
	}
	return &d
}

// payload is the body of a delivery, with the field names that receivers expect.
type payload struct {
	ID          string    `json:"id"`
	Version     string    `json:"version"`
	Type        Type      `json:"type"`
	Timestamp   time.Time `json:"timestamp"`
	Category    string    `json:"event_category"`
	Label       string    `json:"event_label"`
	Data        *Data     `json:"event_data"`
	SandboxID   string    `json:"sandbox_id"`
	ExecutionID string    `json:"sandbox_execution_id"`
	TemplateID  string    `json:"sandbox_template_id"`
	BuildID     string    `json:"sandbox_build_id"`
	TeamID      string    `json:"sandbox_team_id"`
}

// Payload returns the body of a delivery. It is the same at every attempt.
func (e *Event) Payload() ([]byte, error) { return json.Marshal(e.payload()) }

func (e *Event) payload() payload {
	return payload{
		ID: e.ID, Version: payloadVersion, Type: e.Type, Timestamp: e.Time.UTC(), Category: e.Type.Category(), Label: e.Type.Label(),
		Data: e.Data(), SandboxID: string(e.Ref.Sandbox), ExecutionID: e.Execution, TemplateID: e.Template, BuildID: e.Build, TeamID: e.Tenant,
	}
}

// Listed is an event in a list: the payload's fields, named as in E2B's lists.
type Listed struct {
	ID          string    `json:"id"`
	Version     string    `json:"version"`
	Type        Type      `json:"type"`
	Category    string    `json:"eventCategory"`
	Label       string    `json:"eventLabel"`
	Data        *Data     `json:"eventData"`
	BuildID     string    `json:"sandboxBuildId"`
	ExecutionID string    `json:"sandboxExecutionId"`
	SandboxID   string    `json:"sandboxId"`
	TeamID      string    `json:"sandboxTeamId"`
	TemplateID  string    `json:"sandboxTemplateId"`
	Timestamp   time.Time `json:"timestamp"`
}

// Listed returns the event in its form for lists.
func (e *Event) Listed() Listed {
	return Listed{
		ID: e.ID, Version: payloadVersion, Type: e.Type, Category: e.Type.Category(), Label: e.Type.Label(), Data: e.Data(),
		BuildID: e.Build, ExecutionID: e.Execution, SandboxID: string(e.Ref.Sandbox), TeamID: e.Tenant, TemplateID: e.Template,
		Timestamp: e.Time.UTC(),
	}
}
