//go:build !linux

package tick

import (
	"context"
	"errors"
)

// Ticker is of Linux alone.
type Ticker struct{}

// Wanted reports that nobody yields here.
func Wanted() bool { return false }

// Start is refused.
func Start(context.Context, string) (*Ticker, error) { return nil, errors.ErrUnsupported }

// Main is never called for.
func Main() int { return 1 }

// PID is nobody's.
func (*Ticker) PID() int { return 0 }

// Stop does nothing.
func (*Ticker) Stop() {}
