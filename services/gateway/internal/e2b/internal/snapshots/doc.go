// Package snapshots serves E2B's snapshots: how they are taken and listed. A client uses and
// deletes them as templates.
package snapshots
