//go:build !linux

package agentexec

import "errors"

// Exec is possible on Linux only.
func Exec([]string) error { return errors.New("the agent requires Linux") }
