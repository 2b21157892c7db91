// Package restoring marks an installation while a restore is not finished.
package restoring

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/millrace/millrace/events/kind"
)

// Stream exists until the restore has finished. It stores nothing.
const Stream = "RESTORE"

const (
	attempt  = 5 * time.Second
	logAfter = 10
)

// Check returns an error of kind.Precondition if a restore was cut: a service would create the
// streams that it did not restore. It waits for the servers as long as retry returns true.
func Check(ctx context.Context, js jetstream.JetStream, log *slog.Logger, retry func(try int) bool) error {
	for try := 0; ; try++ {
		err := find(ctx, js)
		switch {
		case errors.Is(err, jetstream.ErrStreamNotFound):
			return nil
		case err == nil:
			return kind.Coded(kind.Precondition, "open log", "", "restore_unfinished", "a restore has not finished: run millrace restore again, and start the services when it has ended")
		case try == logAfter:
			log.Warn("streams unavailable, retrying", "err", err)
		}
		if !retry(try) {
			return fmt.Errorf("stream %s: %w", Stream, err)
		}
	}
}

func find(ctx context.Context, js jetstream.JetStream) error {
	ctx, cancel := context.WithTimeout(ctx, attempt)
	defer cancel()
	_, err := js.Stream(ctx, Stream)
	return err
}
