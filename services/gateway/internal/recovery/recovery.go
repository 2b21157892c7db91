// Package recovery keeps what panics from ending the process, and with it the requests and
// streams of all tenants: whatever works on what tenants, sandboxes or strangers made runs in
// Do, in each goroutine anew.
package recovery

import (
	"fmt"
	"log/slog"
	"runtime/debug"

	"github.com/millrace/millrace/events/kind"
)

// Do gives what do gives. A panic is logged, and an Internal error.
func Do(log *slog.Logger, op string, do func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			log.Error(op+" panicked", "panic", p, "stack", string(debug.Stack()))
			err = &kind.Error{Op: op, Kind: kind.Internal, Msg: "a fault of the service's", Err: fmt.Errorf("panic: %v", p)}
		}
	}()
	return do()
}
