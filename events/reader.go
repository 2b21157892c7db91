package events

import (
	"context"
	"time"

	"github.com/millrace/millrace/events/process"
)

// Reader yields one record's events in order, each once. It belongs to one
// goroutine. Any number of readers share one subscription a process.
type Reader struct{}

// Read gives a reader of the events after the given seq (0: from the first). It
// attaches to the live end before it returns, so that an event stored later
// cannot be missed. A record that has no event yet is waited for.
func (l *Log) Read(ref Ref, after process.Seq) *Reader { return nil }

// ReadLive gives a reader of what is stored after now.
func (l *Log) ReadLive(ctx context.Context, ref Ref) (*Reader, error) { return nil, errPending }

// Next waits for the next events and gives what is at hand, at least one; after
// idle of silence it gives an empty batch instead. The events' memory is shared
// between readers and must not be changed. io.EOF follows Finished.
//
// Errors: kind.Gone when the events right after the reader's place fell out of
// retention (Tip tells the first one left); kind.Invalid when the place is past
// the end of a finished record; ctx's error. A hole that no replica can fill is
// a process.Gap in the batch.
func (r *Reader) Next(ctx context.Context, idle time.Duration) ([]process.Event, error) {
	return nil, errPending
}

// After is the seq of the last event given: what a later Read goes on from.
func (r *Reader) After() process.Seq { return 0 }

// Close lets go of the subscription. Next must not be called again.
func (r *Reader) Close() {}
