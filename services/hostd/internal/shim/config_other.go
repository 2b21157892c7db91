//go:build !linux

package shim

import "github.com/millrace/millrace/services/hostd/internal/shim/internal/users"

// ownConfig and clearConfig do nothing: no driver here mounts memory for a configuration.
func ownConfig(*users.Database) error { return nil }

func clearConfig() error { return nil }
