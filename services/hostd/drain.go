package hostd

import (
	"github.com/millrace/millrace/events"
)

// drain answers a command to take no new sandbox, or to take them again. It is
// journaled, so that it holds for later lives, and in the lease before it is
// answered.
func (h *host) drain(c events.Command, drain bool) error {
	if err := h.journal.setDraining(drain); err != nil {
		h.refuse(c, err)
		return err
	}
	h.draining.Store(drain)
	h.outdated()
	h.cursor.end(c.Rev)
	h.answer(c, events.Reply{})
	return nil
}
