// Package storage implements the operations on what tenants store apart from sandboxes:
// volumes and secrets.
package storage
