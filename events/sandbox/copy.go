package sandbox

import "github.com/millrace/millrace/events/kind"

// Copy is what is known of the copy, in the servers' store, of files that a host
// has: from it any host has them.
type Copy struct {
	Manifest string    // of their tree, a template.Manifest; empty: there is none
	Wanted   bool      // somebody waits until it is stored; with a Manifest: stored again, because it is damaged
	Refusal  kind.Kind // with Reason
	Reason   string    // why they cannot be stored; empty: they are, or nobody tried
}

// Err is why there is no copy; nil if none was tried.
func (c *Copy) Err(op, id string) error {
	if c.Reason == "" {
		return nil
	}
	return kind.New(c.Refusal, op, id, c.Reason)
}
