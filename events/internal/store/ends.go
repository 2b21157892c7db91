package store

import (
	"sync"

	"github.com/millrace/millrace/events/internal/streams"
)

// Ends are the ends of streams as far as one process knows them: for each, the highest stream
// sequence that the servers acknowledged to a connection of the process, or that one has read.
//
// If no other process is connected to the servers, a client cannot have learned of a later message:
// whatever it was told, a connection of this process knew before. Then Ends replace a request to the
// leader, except for the first time and after a reconnect. Its methods may be called concurrently; a
// nil *Ends knows nothing.
type Ends struct{ byStream map[string]*end }

// end is the end of one stream.
type end struct {
	mu    sync.Mutex
	seq   uint64
	asked bool // the leader was asked since the last reconnect: earlier messages are known
}

// NewEnds returns the ends of all streams but those of the output, unknown yet.
func NewEnds() *Ends {
	e := &Ends{byStream: make(map[string]*end)}
	for _, stream := range streams.Names(0) {
		e.byStream[stream] = &end{}
	}
	return e
}

// of returns the end of a stream; nil if it is not kept.
func (e *Ends) of(stream string) *end {
	if e == nil {
		return nil
	}
	return e.byStream[stream]
}

// stored records that a message under a subject was stored.
func (e *Ends) stored(subject string, seq uint64) {
	if e != nil {
		e.of(streams.Of(subject)).raise(seq)
	}
}

// read records that messages of a stream were read, in order.
func (e *Ends) read(stream string, msgs []Message) {
	if n := len(msgs); e != nil && n > 0 {
		e.of(stream).raise(msgs[n-1].Seq)
	}
}

// answered records the leader's answer for the end of a stream.
func (e *Ends) answered(stream string, seq uint64) {
	if end := e.of(stream); end != nil {
		end.mu.Lock()
		defer end.mu.Unlock()
		end.seq, end.asked = max(end.seq, seq), true
	}
}

// forget makes the ends unknown: restarted servers may have lost messages.
func (e *Ends) forget() {
	if e == nil {
		return
	}
	for _, end := range e.byStream {
		end.mu.Lock()
		end.seq, end.asked = 0, false
		end.mu.Unlock()
	}
}

// raise records a stream sequence.
func (e *end) raise(seq uint64) {
	if e == nil {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.seq = max(e.seq, seq)
}

// Known returns the end of a stream, if it is known: no client has learned of a later message.
func (e *Ends) Known(stream string) (seq uint64, ok bool) {
	end := e.of(stream)
	if end == nil {
		return 0, false
	}
	end.mu.Lock()
	defer end.mu.Unlock()
	return end.seq, end.asked
}
