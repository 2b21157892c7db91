package command

import (
	"context"
	"time"

	"github.com/millrace/millrace/internal/cli/client"
)

// CleanupTimeout bounds the clean-up requests of a command, which are sent even after an interrupt.
const CleanupTimeout = 15 * time.Second

// Discard removes a sandbox created for one command. If that fails, the sandbox ends at
// its deadline.
func (a *Env) Discard(ctx context.Context, c *client.Client, sbx string, lifetime time.Duration) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), CleanupTimeout)
	defer cancel()
	if err := c.RemoveSandbox(ctx, sbx); err != nil {
		a.Notef("sandbox %s not removed, ends within %v: %v", sbx, lifetime, err)
	}
}
