package hostd

import "github.com/millrace/millrace/events"

// drain handles a command to drain the host, or to end that. It is journaled, so that it holds
// for later runs, and in the lease before the reply.
func (h *host) drain(c events.Command, drain bool) error {
	if err := h.journal.SetDraining(drain); err != nil {
		h.refuse(c, err)
		return err
	}
	h.draining.Store(drain)
	h.renewLease()
	h.cursor.End(c.Rev)
	h.answer(c, events.Reply{})
	return nil
}
