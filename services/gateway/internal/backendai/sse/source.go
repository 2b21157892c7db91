package sse

import (
	"context"
	"time"

	"github.com/millrace/millrace/events/process"
)

// carried is an event of a session as an event of a process, which is what streams transport.
type carried struct {
	process.Lost // makes it a process.Body
	Event
}

// Source is the events for one listener, in order. It implements stream.Source.
type Source struct {
	hub    *Hub
	tenant string
	topic  *topic
	at     Cursor
	pick   func(dst []Event, e *Event) []Event
	first  []Event
	count  process.Seq
}

// Listen returns the events of a tenant after a cursor, as pick appends them. Those in now come
// first.
func (h *Hub) Listen(tenant string, after Cursor, now []Event, pick func(dst []Event, e *Event) []Event) *Source {
	if begin := Through(0); after.Compare(begin) < 0 {
		after = begin
	}
	return &Source{hub: h, tenant: tenant, topic: h.join(tenant), at: after, first: now, pick: pick}
}

// Now returns the cursor of a listener that wants new events only.
func (h *Hub) Now() Cursor { return Through(h.log.SandboxesRev()) }

// Close ends the source.
func (s *Source) Close() { s.hub.leave(s.tenant) }

// After returns the number of events returned.
func (s *Source) After() process.Seq { return s.count }

// Next waits for events.
func (s *Source) Next(ctx context.Context, idle time.Duration) ([]process.Event, error) {
	if first := s.first; len(first) > 0 {
		s.first = nil
		return s.carry(first), nil
	}
	var quiet <-chan time.Time
	if idle > 0 {
		t := time.NewTimer(idle)
		defer t.Stop()
		quiet = t.C
	}
	for {
		events, until, changed := s.hub.after(s.topic, s.at)
		if until > 0 {
			var err error
			if events, err = s.read(ctx, until); err != nil {
				return nil, err
			}
		}
		var out []Event
		for i := range events {
			s.at = events[i].Cursor
			out = s.pick(out, &events[i])
		}
		switch {
		case len(out) > 0:
			return s.carry(out), nil
		case len(events) > 0 || until > 0:
			continue
		}
		select {
		case <-changed:
		case <-quiet:
			return nil, nil
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// read reads the next events from the log, up to a stream sequence.
func (s *Source) read(ctx context.Context, until uint64) ([]Event, error) {
	// An event of the log may have names that the listener lacks.
	all, read, err := s.hub.log.SandboxEvents(ctx, s.tenant, s.at.At-1, until)
	if err != nil {
		return nil, err
	}
	var out []Event
	for i := range all {
		for _, e := range Of(&all[i]) {
			if e.Compare(s.at) > 0 {
				out = append(out, e)
			}
		}
	}
	if len(out) == 0 {
		s.at = Cursor{At: max(s.at.At, read)}
	}
	return out, nil
}

func (s *Source) carry(events []Event) []process.Event {
	out := make([]process.Event, len(events))
	for i := range events {
		s.count++
		out[i] = process.Event{Seq: s.count, Body: carried{Event: events[i]}}
	}
	return out
}
