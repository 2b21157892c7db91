package persistence

import (
	"time"

	"github.com/millrace/millrace/events/process"
	"github.com/millrace/millrace/events/sandbox"
)

const (
	// Hold is how long a run may use a claim after it stored it.
	Hold = 7 * time.Second
	// silence is the age of a claim after which another run takes over.
	silence = 10 * time.Second
	// Keep is how long a progress is kept after everything was sent: longer than the record of its
	// sandbox.
	Keep = 32 * 24 * time.Hour
)

// Progress is how far a sandbox's part of a conversation has been sent.
type Progress struct {
	Tenant  string
	Sandbox sandbox.ID

	Offset   uint64      // number of bytes of the runtime's output that were accepted
	After    process.Seq // the next event to read is after this one
	Events   uint64      // number of accepted events
	Requests uint64
	Failures uint32 // requests that failed since the last accepted one
	Error    string // of the last request; empty: it was accepted
	Holder   string // run of a reaper; empty: none
	Done     bool   // nothing is left to send
	Stored   time.Time

	Rev      uint64    // stream sequence, which the next change must expect; 0: none
	Received time.Time // local time of its receipt
}

// Free reports whether a run may claim the progress.
func (p *Progress) Free(run string, now time.Time) bool {
	return !p.Done && (p.Holder == "" || p.Holder == run || now.Sub(p.Received) > silence)
}
