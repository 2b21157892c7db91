package sandbox

import (
	"cmp"
	"time"

	"github.com/millrace/millrace/events/kind"
)

// SnapshotID identifies a snapshot: "s" and 20 of [a-z0-9]. It is part of directory names
// and subjects, so ids from outside must be parsed.
type SnapshotID string

const snapshotPrefix = 's'

// NewSnapshotID returns an id of 103 random bits.
func NewSnapshotID() SnapshotID { return SnapshotID(newID(snapshotPrefix)) }

// KeyedSnapshotID is KeyedID for a snapshot.
func KeyedSnapshotID(key string) SnapshotID { return SnapshotID(keyedID(snapshotPrefix, key)) }

// ParseSnapshotID validates an id from outside.
func ParseSnapshotID(s string) (SnapshotID, error) {
	id, err := ParseID(s)
	if err != nil || len(s) != newIDLen || s[0] != snapshotPrefix {
		return "", kind.New(kind.NotFound, "parse snapshot id", "", "snapshot not found")
	}
	return SnapshotID(id), nil
}

// Snapshot is the state of a sandbox at one moment, from which others can start. It is on
// the host of its sandbox and outlives the sandbox. With a copy in the store it outlives
// its host, and other hosts can get it.
type Snapshot struct {
	ID        SnapshotID
	Tenant    string
	Sandbox   ID     // its source
	Host      string // that took it
	Driver    string // that took it
	Fits      string // what a host must report of a driver to use it (fleet.Lease.Fit); empty: only Host can, with Driver
	Template  string
	Name      string    // NAME or NAME:TAG; empty: none
	Memory    bool      // it includes the processes
	Internal  bool      // taken by a fork or a build: not listed
	Layer     string    // of a build: the sum of its inputs; empty: of none
	Isolation Isolation // demanded by its source, and therefore by sandboxes made from it
	Taken     time.Time
	Deleted   bool
	Copy      Copy
	Rev       uint64    // stream sequence of its last change, which the next change must expect
	Changed   time.Time // when that was stored

	// Resources are those of its source, and the defaults of sandboxes made from it.
	Resources

	// Defaults are those of its source, which sandboxes made from it inherit and extend with
	// their own Env. Unknown for snapshots by a fork or a build.
	Defaults
}

// CompareSnapshots orders snapshots, newest first.
func CompareSnapshots(a, b *Snapshot) int {
	return cmp.Or(b.Taken.Compare(a.Taken), cmp.Compare(a.ID, b.ID))
}
