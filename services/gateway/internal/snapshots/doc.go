// Package snapshots makes, finds and deletes snapshots: those of clients, and the layers of
// builds.
package snapshots
