package catalog

import "github.com/millrace/millrace/events/internal/store"

// Documents reads and writes what a [View] is folded from: documents, and the records of
// sandboxes and builds. It reads from the leader and has no state of its own. Its methods may
// be called concurrently.
type Documents struct{ conn *store.Conn }

// NewDocuments returns the documents in the log.
func NewDocuments(conn *store.Conn) *Documents { return &Documents{conn} }
