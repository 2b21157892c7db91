package store

import (
	"context"
	"slices"
)

// The messages of a record form a chain: each is stored under the condition that a certain
// message is the record's last, and the condition is stored with it. So a quiet record
// among busy ones is read backwards, each message by its stream sequence. A request for the
// next message of a subject would make the store scan all messages of other records in
// between, and block other requests of the same connection meanwhile.

// sinceLen is the most messages that readSince returns.
const sinceLen = 8

// readSince reads the messages of a subject after stream sequence last. whole is false if
// there are many, or if that is unknown.
func (l *Conn) readSince(ctx context.Context, stream, subject string, last uint64) (out []Message, whole bool, err error) {
	got, err := l.DirectGet(ctx, stream, GetRequest{Last: subject})
	if err != nil || len(got) == 0 || got[0].Seq <= last {
		return nil, err == nil, err
	}
	return l.Chain(ctx, stream, last, got[0], sinceLen)
}

// Chain reads backwards from a message to the first one after stream sequence from, at most
// the given number, and returns them oldest first; if they are large, only the older part.
// whole reports whether it reached from.
func (l *Conn) Chain(ctx context.Context, stream string, from uint64, m Message, most int) (out []Message, whole bool, err error) {
	for size := 0; ; most-- {
		out, size = append(out, m), size+len(m.Data)
		for ; size > BatchBytes && len(out) > 1; out = out[1:] {
			size -= len(out[0].Data) // newer messages are read again later
		}
		switch {
		case m.After <= from:
			slices.Reverse(out)
			return out, true, nil
		case m.After >= m.Seq || most == 1:
			return nil, false, nil
		}
		got, err := l.DirectGet(ctx, stream, GetRequest{Seq: m.After})
		if err != nil || len(got) == 0 || got[0].Subject != m.Subject {
			return nil, false, err
		}
		m = got[0]
	}
}
