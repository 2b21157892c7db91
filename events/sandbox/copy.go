package sandbox

import "github.com/millrace/millrace/events/kind"

// Copy is the state of the copy of a host's files in the servers' store, from which any
// host can get them.
type Copy struct {
	Manifest string    // a template.Manifest of their tree; empty: no copy
	Wanted   bool      // a caller waits for the copy; with a Manifest: it is damaged and must be stored again
	Refusal  kind.Kind // with Reason
	Reason   string    // why the copy failed; empty: it succeeded or was not attempted
}

// Err returns why the copy failed; nil if it did not.
func (c *Copy) Err(op, id string) error {
	if c.Reason == "" {
		return nil
	}
	return kind.New(c.Refusal, op, id, c.Reason)
}
