package sandboxes

import (
	"context"
	"time"

	"github.com/gofiber/fiber/v2"

	"github.com/millrace/millrace/events/bootstrap"
	"github.com/millrace/millrace/events/process"
	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/services/gateway/internal/auth"
	"github.com/millrace/millrace/services/gateway/internal/core"
	"github.com/millrace/millrace/services/gateway/internal/procs"
	"github.com/millrace/millrace/services/gateway/internal/stream"
)

// Processes starts processes. A record.Gateway implements it.
type Processes interface {
	Start(ctx context.Context, p core.Principal, sbx sandbox.ID, spec process.Spec, opt procs.StartOptions) (process.ID, stream.Source, error)
}

// desktopTimeout limits the time in which a create waits for the display.
const desktopTimeout = 15 * time.Second

// hasDesktop reports whether the sandbox of a request has a desktop.
func (r *request) hasDesktop() bool {
	return r.Template == "cua" || r.EnvVars[bootstrap.DesktopEnv] == "true"
}

// startDesktop starts the desktop of a request, or finds the one that an earlier attempt started, and waits
// for its display. A display that does not become ready is no error: its process, which runs on, logs why.
func (h *Handler) startDesktop(c *fiber.Ctx, r *request, st *sandbox.State, keyed bool) error {
	if !r.hasDesktop() || !st.IsRunning() {
		return nil
	}
	ctx, cancel := context.WithTimeout(c.UserContext(), desktopTimeout)
	defer cancel()
	_, src, err := h.Processes.Start(ctx, auth.From(c), st.ID, bootstrap.Desktop(), procs.StartOptions{IdempotencyKey: bootstrap.DesktopTag})
	if err != nil {
		if !keyed { // the client does not get its id
			h.Lifecycle.Abandon(c.UserContext(), st.ID)
		}
		return err
	}
	defer src.Close()
	for {
		batch, err := src.Next(ctx, desktopTimeout)
		for i := range batch {
			switch b := batch[i].Body.(type) {
			case process.Finished:
				return nil
			case process.Wrote:
				if b.Stream == process.Stdout {
					return nil
				}
			default:
				// It starts.
			}
		}
		if err != nil || len(batch) == 0 {
			return nil // see above
		}
	}
}
