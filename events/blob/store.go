package blob

import "github.com/millrace/millrace/events/internal/store"

// Config configures a Store.
type Config struct {
	Replicas      int   // number of replicas of each new object store
	MaxContexts   int64 // maximum bytes of files copied by builds, set when their store is created
	MaxStore      int64 // maximum bytes of templates and snapshots, set when their store is created
	MaxWorkspaces int64 // maximum bytes of files of workspaces, set when their store is created
}

// Store keeps files. Its methods may be called concurrently.
type Store struct {
	conn *store.Conn
	cfg  Config
}

// New returns a Store.
func New(conn *store.Conn, cfg Config) *Store { return &Store{conn, cfg} }
