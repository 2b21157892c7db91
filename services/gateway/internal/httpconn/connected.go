package httpconn

import (
	"context"
	"time"

	"github.com/gofiber/fiber/v2"
)

// pollInterval is how often Connected checks the connection.
const pollInterval = 200 * time.Millisecond

// Connected returns a context for a handler that waits before it writes anything. The
// context is canceled when the client closes the connection, or its writing half, which
// net/http treats alike. The caller must call stop before it returns.
//
// The server reads nothing from the connection while a handler runs, so that Connected
// polls its state with [Gone].
func Connected(c *fiber.Ctx) (ctx context.Context, stop context.CancelFunc) {
	ctx, cancel := context.WithCancel(c.UserContext())
	conn := c.Context().Conn()
	done := make(chan struct{})
	go func() {
		defer close(done)
		tick := time.NewTicker(pollInterval)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
				if Gone(conn) {
					cancel()
					return
				}
			}
		}
	}()
	return ctx, func() {
		cancel()
		<-done // the server uses the connection again from here on
	}
}
