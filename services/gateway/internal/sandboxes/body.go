package sandboxes

import (
	"cmp"
	"time"

	"github.com/millrace/millrace/events/sandbox"
)

// States of a sandbox in responses.
const (
	stateStarting = "starting"
	stateRunning  = "running"
	statePaused   = "paused" // or pausing, or resuming
	stateStopping = "stopping"
	stateEnded    = "ended"
)

func states() []string {
	return []string{stateStarting, stateRunning, statePaused, stateStopping, stateEnded}
}

// body is a sandbox in a response.
type body struct {
	Sandbox    string            `json:"sandbox"`
	Template   string            `json:"template"`
	Alias      string            `json:"alias,omitempty"`
	State      string            `json:"state"`
	Outcome    string            `json:"outcome,omitempty"` // how it ended: destroyed, failed, lost or refused
	Cause      string            `json:"cause,omitempty"`
	Message    string            `json:"message,omitempty"`
	CreatedAt  time.Time         `json:"created_at"`
	StartedAt  *time.Time        `json:"started_at"`
	PausedAt   *time.Time        `json:"paused_at,omitempty"`
	EndsAt     *time.Time        `json:"ends_at,omitempty"`     // while it runs
	HardEndAt  *time.Time        `json:"hard_end_at,omitempty"` // when it ends in any case
	EndedAt    *time.Time        `json:"ended_at,omitempty"`
	Host       string            `json:"host,omitempty"`
	Driver     string            `json:"driver,omitempty"`
	Isolation  string            `json:"isolation,omitempty"`
	CPUs       float64           `json:"cpus,omitempty"`
	MemoryMB   uint32            `json:"memory_mb,omitempty"`
	DiskMB     uint32            `json:"disk_mb,omitempty"`
	PIDs       uint32            `json:"pids,omitempty"`
	Internet   bool              `json:"internet"`
	OnTimeout  string            `json:"on_timeout"`
	AutoResume bool              `json:"auto_resume"`
	Metadata   map[string]string `json:"metadata,omitempty"`
}

func stateOf(st *sandbox.State) string {
	switch {
	case st.Over():
		return stateEnded
	case st.Begins():
		return stateStarting
	case st.InPause():
		return statePaused
	case st.IsRunning():
		return stateRunning
	}
	return stateStopping
}

func bodyOf(st *sandbox.State) body {
	b := body{
		Sandbox: string(st.ID), Template: cmp.Or(st.Request.Built, st.Request.Template), Alias: st.Request.Alias,
		State: stateOf(st), Cause: st.Cause, Message: cmp.Or(st.Message, st.Queued),
		CreatedAt: st.Created.UTC(), StartedAt: timeOf(st.Started), PausedAt: timeOf(st.PausedSince), EndedAt: timeOf(st.Ended), HardEndAt: timeOf(st.Request.HardEnd),
		Host: st.Host, Driver: st.Driver, Isolation: string(st.Isolation),
		CPUs: float64(st.Request.CPUMilli) / 1000, MemoryMB: st.Request.MemoryMiB, DiskMB: st.Request.DiskMiB, PIDs: st.Request.PIDs,
		Internet: st.Network.Internet, OnTimeout: cmp.Or(st.Request.OnTimeout, sandbox.OnTimeoutKill), AutoResume: st.Request.AutoResume,
		Metadata: st.Request.Metadata,
	}
	switch b.State {
	case stateRunning:
		b.EndsAt = timeOf(st.Deadline)
	case stateEnded:
		b.Outcome = string(st.Phase)
	}
	return b
}

// timeOf returns t in UTC, or nil if it is zero.
func timeOf(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	t = t.UTC()
	return &t
}
