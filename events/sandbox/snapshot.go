package sandbox

import (
	"cmp"
	"time"

	"github.com/millrace/millrace/events/kind"
)

// SnapshotID names a snapshot: "s" and 20 of [a-z0-9]. It is a name of a
// directory and of a subject, so that what comes from outside is parsed.
type SnapshotID string

const snapshotPrefix = 's'

// NewSnapshotID makes an id of 103 random bits.
func NewSnapshotID() SnapshotID { return SnapshotID(newID(snapshotPrefix)) }

// KeyedSnapshotID is KeyedID of a snapshot.
func KeyedSnapshotID(key string) SnapshotID { return SnapshotID(keyedID(snapshotPrefix, key)) }

// ParseSnapshotID checks an id that came from outside.
func ParseSnapshotID(s string) (SnapshotID, error) {
	id, err := ParseID(s)
	if err != nil || len(s) != newIDLen || s[0] != snapshotPrefix {
		return "", kind.New(kind.NotFound, "parse snapshot id", "", "snapshot not found")
	}
	return SnapshotID(id), nil
}

// Snapshot is a sandbox as it was at one moment, from which others begin. It is
// on the host of the sandbox that it was made of, and outlives that sandbox; with
// a copy in the store it outlives its host, and others may have it.
type Snapshot struct {
	ID        SnapshotID
	Tenant    string
	Sandbox   ID     // that it was made of
	Host      string // that made it
	Driver    string // that made it
	Fits      string // what a host must say of a driver to use it (fleet.Lease.Fit); empty: only Host can, with Driver
	Template  string
	Name      string    // NAME or NAME:TAG; empty: none
	Memory    bool      // it holds the processes too
	Internal  bool      // made by a fork or a build: it is not listed
	Layer     string    // of a build: the sum of all that it was made by; empty: of none
	Isolation Isolation // that was demanded of the sandbox, and so is of one made from it
	Taken     time.Time
	Deleted   bool
	Copy      Copy
	Rev       uint64    // stream sequence of its last change: what the next must expect
	Changed   time.Time // when that was stored

	// The limits of the sandbox; one made from it has them unless it says others.
	CPUMilli, MemoryMiB, DiskMiB, PIDs uint32

	// What processes of the sandbox began with (Requested); one made from it has that,
	// too, and its own Env besides. Not known of what a fork or a build made.
	Env                         map[string]string
	User, Workdir, Start, Ready string
}

// CompareSnapshots orders snapshots, the newest first.
func CompareSnapshots(a, b *Snapshot) int {
	return cmp.Or(b.Taken.Compare(a.Taken), cmp.Compare(a.ID, b.ID))
}
