package events

import (
	"context"

	"github.com/millrace/millrace/events/process"
)

// Writer appends to one process's record: one message in flight, each expecting
// the one before. It belongs to one goroutine.
type Writer struct{}

// MaxBatch is the most bytes of output that one message carries. Append splits
// what is larger.
const MaxBatch = 256 << 10

// Writer gives a writer for a record of this host's life. It does no I/O; the
// record is taken to be empty until Recover says otherwise.
func (l *Log) Writer(ref Ref, epoch uint64) *Writer { return nil }

// Tip is the end of a record.
type Tip struct {
	First    process.Seq // the first event still stored
	Last     process.Seq // the last event stored
	Host     string      // who wrote the last message
	Epoch    uint64
	Finished *process.Finished // nil: the record goes on
}

// Tip reads the end of a record from its leader. NotFound if it has no event.
func (l *Log) Tip(ctx context.Context, ref Ref) (Tip, error) { return Tip{}, errPending }

// Recover makes w go on after what is stored, as a new life of a host must.
// NotFound if the record has no event: then w is at its start.
func (w *Writer) Recover(ctx context.Context) (Tip, error) { return Tip{}, errPending }

// Append stores events in the given order, once, and returns when they are
// stored. Their Seq must be the next ones (w.Last()+1...). It retries through
// outages until ctx ends; after an error for any other reason than kind.Fenced
// the same events may be appended again. Fenced: somebody else ended the record,
// or a newer life of this host writes it; nothing may follow. Conflict: the first
// event of the record was claimed by another Start.
func (w *Writer) Append(ctx context.Context, events []process.Event) error { return errPending }

// Last is the seq of the last event known to be stored.
func (w *Writer) Last() process.Seq { return 0 }
