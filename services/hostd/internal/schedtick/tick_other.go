//go:build !linux

package schedtick

import (
	"context"
	"errors"
)

// Ticker is supported on Linux only.
type Ticker struct{}

// Needed returns false: sandboxes are not deprioritized here.
func Needed() bool { return false }

// Start returns errors.ErrUnsupported.
func Start(context.Context, string) (*Ticker, error) { return nil, errors.ErrUnsupported }

// Main is not used.
func Main() int { return 1 }

// PID returns 0.
func (*Ticker) PID() int { return 0 }

// Stop does nothing.
func (*Ticker) Stop() {}
