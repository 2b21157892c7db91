// Package recovery keeps panics from ending the process, and with it the requests and streams
// of all tenants: every goroutine that handles input of clients, tenants or sandboxes runs it
// inside Do.
package recovery

import (
	"fmt"
	"log/slog"
	"runtime/debug"

	"github.com/millrace/millrace/events/kind"
)

// Do returns the result of do. It logs a panic and returns it as an Internal error.
func Do(log *slog.Logger, op string, do func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			log.Error(op+" panicked", "panic", p, "stack", string(debug.Stack()))
			err = &kind.Error{Op: op, Kind: kind.Internal, Msg: "internal fault", Err: fmt.Errorf("panic: %v", p)}
		}
	}()
	return do()
}
