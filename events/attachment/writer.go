package attachment

import (
	"crypto/sha256"
	"time"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/process"
)

// WriterTTL is how long a client may type into a terminal after it last renewed its lease.
const WriterTTL = 15 * time.Second

// LeaseHash is the SHA-256 of the id of a writer's lease, which the log does not have. The zero value
// is no lease.
type LeaseHash [sha256.Size]byte

// HashLease returns the hash of the id of a lease.
func HashLease(id string) LeaseHash { return sha256.Sum256([]byte(id)) }

// Claim is a lease and the name that its client is shown under.
type Claim struct {
	Lease LeaseHash
	Name  string
	Since time.Time // when the client took it, or asked for it
}

// Writer is the client that may type into a terminal. The zero value, with its names, is a terminal
// that no client has typed into.
type Writer struct {
	Tenant   string
	Process  process.ID
	Holder   Claim     // no lease: it was released
	Asked    Claim     // client that waits for a hand-over; no lease: none
	Gateway  string    // run of the gateway that stored this
	Stored   time.Time // when this was stored, by the clock of the log
	Received time.Time // local time of its receipt
	Rev      uint64    // stream sequence, which the next change must expect; 0: nothing is stored
}

// Held reports whether a client has the lease. gone says that the lease of its gateway has ended.
func (w *Writer) Held(gone bool, now time.Time) bool {
	return w.Holder.Lease != LeaseHash{} && !gone && now.Sub(w.Received) < WriterTTL
}

// waits reports whether a client waits for a hand-over.
func (w *Writer) waits(now time.Time) bool {
	return w.Asked.Lease != LeaseHash{} && now.Sub(w.Asked.Since) < WriterTTL
}

// Take makes a client the writer, or renews its lease, and reports whether it is the writer. If another client
// has the lease, Take returns Conflict with its name. With ask, it notes instead that the client waits
// for a hand-over.
func (w *Writer) Take(c Claim, ask, held bool, now time.Time) (writes bool, err error) {
	switch {
	case held && w.Holder.Lease == c.Lease:
		return true, nil
	case !held:
		w.Holder = Claim{c.Lease, c.Name, now}
		if w.Asked.Lease == c.Lease {
			w.Asked = Claim{}
		}
		return true, nil
	case !ask:
		return false, w.conflict()
	case w.waits(now) && w.Asked.Lease != c.Lease:
		return false, kind.Newf(kind.Conflict, "ask for lease", string(w.Process), "%q waits for the lease already", w.Asked.Name)
	}
	w.Asked = Claim{c.Lease, c.Name, now}
	return false, nil
}

// HandOver makes the client that waits the writer. It returns Conflict if the lease is another client's,
// or if no client waits.
func (w *Writer) HandOver(lease LeaseHash, held bool, now time.Time) error {
	if !held || w.Holder.Lease != lease {
		return w.Refusal(held)
	}
	if !w.waits(now) {
		return kind.New(kind.Conflict, "hand over lease", string(w.Process), "no client waits for the lease")
	}
	w.Holder, w.Asked = w.Asked, Claim{}
	w.Holder.Since = now
	return nil
}

// Release ends a lease, or the wait of a client. A client that waits for the lease becomes the writer. It
// returns Conflict if the lease is another client's.
func (w *Writer) Release(lease LeaseHash, held bool, now time.Time) error {
	if held && w.Asked.Lease == lease && w.Holder.Lease != lease {
		w.Asked = Claim{}
		return nil
	}
	if held && w.Holder.Lease != lease {
		return w.conflict()
	}
	if held && w.waits(now) {
		return w.HandOver(lease, held, now)
	}
	w.Holder, w.Asked = Claim{}, Claim{}
	return nil
}

// Refusal returns the error for a client that types without the lease.
func (w *Writer) Refusal(held bool) error {
	if held {
		return w.conflict()
	}
	return kind.New(kind.Conflict, "write", string(w.Process), "no client has the writer's lease: take it first")
}

func (w *Writer) conflict() error {
	return kind.Newf(kind.Conflict, "write", string(w.Process), "%q has the writer's lease", w.Holder.Name)
}
