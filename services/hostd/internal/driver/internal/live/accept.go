package live

import (
	"context"
	"errors"
	"net"
	"time"
)

// ErrEarly says that a shim ended before it accepted anybody.
var ErrEarly = errors.New("the shim ended early")

// Accepts returns when the shim that listens in dir has taken a connection and
// let it go again, as it does with one on which nobody speaks: it has been
// executed. Nobody but the shim may hold its listener. ErrEarly if it is gone.
func Accepts(ctx context.Context, dir string) error {
	conn, err := Dial(ctx, dir)
	if err != nil {
		return errors.Join(ErrEarly, err)
	}
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { conn.SetDeadline(time.Unix(1, 0)) }) //nolint:errcheck // a unix socket takes deadlines
	defer stop()
	if c, ok := conn.(*net.UnixConn); ok {
		if err := c.CloseWrite(); err != nil {
			return errors.Join(ErrEarly, err)
		}
	}
	// The end comes from a shim that accepted or from the death of the listener;
	// whoever dials again can tell which.
	conn.Read(make([]byte, 1)) //nolint:errcheck // see above
	if ctx.Err() != nil {
		return ctx.Err()
	}
	again, err := Dial(ctx, dir)
	if err != nil {
		return errors.Join(ErrEarly, err)
	}
	return again.Close()
}
