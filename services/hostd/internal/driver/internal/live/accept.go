package live

import (
	"context"
	"errors"
	"net"
	"time"
)

// ErrEndedEarly reports that a shim ended before it accepted a connection.
var ErrEndedEarly = errors.New("the shim ended early")

// AwaitAccept returns when the shim that listens in dir has accepted a connection and closed
// it, as it does with one that sends nothing: it has been executed. Only the shim may
// hold its listener. AwaitAccept returns ErrEndedEarly if the shim has ended.
func AwaitAccept(ctx context.Context, dir string) error {
	conn, err := Dial(ctx, dir)
	if err != nil {
		return errors.Join(ErrEndedEarly, err)
	}
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	if c, ok := conn.(*net.UnixConn); ok {
		if err := c.CloseWrite(); err != nil {
			return errors.Join(ErrEndedEarly, err)
		}
	}
	// The end comes from a shim that accepted or from the death of the listener;
	// a second dial distinguishes them.
	conn.Read(make([]byte, 1)) //nolint:errcheck // see above
	if ctx.Err() != nil {
		return ctx.Err()
	}
	second, err := Dial(ctx, dir)
	if err != nil {
		return errors.Join(ErrEndedEarly, err)
	}
	return second.Close()
}
