package gateway

import (
	"github.com/millrace/millrace/events/sandbox"
)

// Recording is what an installation keeps of processes. A sandbox can only be stricter.
type Recording struct {
	Record string   // full, meta or none; default full
	Redact []string // patterns of what is replaced in output and commands
}

// Check returns an error if a setting is not valid.
func (c *Recording) Check() error {
	if _, err := sandbox.ParsePolicy(c.Record); err != nil {
		return err
	}
	s := c.settings()
	return s.Check()
}

func (c *Recording) settings() sandbox.Recording {
	policy, err := sandbox.ParsePolicy(c.Record)
	if err != nil { // Check has rejected it
		policy = sandbox.RecordNone
	}
	return sandbox.Recording{Record: policy, Redact: c.Redact}
}
