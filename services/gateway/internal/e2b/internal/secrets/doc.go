// Package secrets serves E2B's secrets. A value is never returned.
package secrets
