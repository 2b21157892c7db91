package hostd

import "github.com/millrace/millrace/events"

// drain handles a command to drain the host, or to end that. It is journaled, so that it holds
// for later runs, and in the lease before the reply.
func (r *commandReader) drain(c events.Command, drain bool) error {
	if err := r.h.journal.SetDraining(drain); err != nil {
		r.refuse(c, err)
		return err
	}
	r.h.leases.draining.Store(drain)
	r.h.leases.renew()
	r.cursor.End(c.Rev)
	r.answer(c, events.Reply{})
	return nil
}
