package events

import (
	"context"

	"github.com/millrace/millrace/events/fleet"
	"github.com/millrace/millrace/events/process"
	"github.com/millrace/millrace/events/sandbox"
)

// View is what the log says of all sandboxes, processes, hosts and keys, folded
// into memory and kept up to date. Its methods may be called concurrently. Ended
// sandboxes and processes are kept as long as the log keeps them.
type View struct{}

// OpenView folds the log and returns when it has caught up. It lives until ctx
// ends.
func (l *Log) OpenView(ctx context.Context) (*View, error) { return nil, errPending }

// Sync waits until everything stored before the call is in the view.
func (v *View) Sync(ctx context.Context) error { return errPending }

// Sandbox gives a sandbox's state.
func (v *View) Sandbox(id sandbox.ID) (sandbox.State, bool) { return sandbox.State{}, false }

// Sandboxes gives those for which keep is true, newest first.
func (v *View) Sandboxes(keep func(*sandbox.State) bool) []sandbox.State { return nil }

// ChangeSandbox appends what decide makes of the sandbox's newest state, and
// decides again if somebody else wrote first. decide gives nothing to append
// nothing. It returns the state after, which the view then has. NotFound if
// there is no such sandbox.
func (v *View) ChangeSandbox(ctx context.Context, id sandbox.ID, decide func(sandbox.State) ([]sandbox.Body, error)) (sandbox.State, error) {
	return sandbox.State{}, errPending
}

// CreateSandbox stores a new sandbox's request.
func (v *View) CreateSandbox(ctx context.Context, tenant string, id sandbox.ID, req sandbox.Requested) (sandbox.State, error) {
	return sandbox.State{}, errPending
}

// AwaitSandbox waits until the sandbox's state satisfies done, or ctx's end.
func (v *View) AwaitSandbox(ctx context.Context, id sandbox.ID, done func(*sandbox.State) bool) (sandbox.State, error) {
	return sandbox.State{}, errPending
}

// Process gives a process's entry in the catalogue and its rev, for PutSummary.
func (v *View) Process(id process.ID) (process.Summary, uint64, bool) {
	return process.Summary{}, 0, false
}

// Processes gives the entries of a sandbox ("": of all) for which keep is true,
// oldest first.
func (v *View) Processes(sbx sandbox.ID, keep func(*process.Summary) bool) []process.Summary {
	return nil
}

// ProcessByPID gives the newest process of the sandbox that had pid.
func (v *View) ProcessByPID(sbx sandbox.ID, pid uint32) (process.Summary, bool) {
	return process.Summary{}, false
}

// Counts counts all processes ever started that the log knows of, by outcome
// (OutcomeActive: those that run). It follows C-040 to C-042: the sum over all
// outcomes is the number started.
func (v *View) Counts() map[process.Outcome]uint64 { return nil }

// Hosts gives all hosts that ever had a lease, by name; those gone too.
func (v *View) Hosts() []fleet.Host { return nil }

// Host gives one host.
func (v *View) Host(name string) (fleet.Host, bool) { return fleet.Host{}, false }

// Keys gives the key with that hash, if it may be used.
func (v *View) Key(sha256 [32]byte) (Key, bool) { return Key{}, false }

// Changes gives a channel that gets a value after the view changed. It holds
// one value: whoever is slow sees one for many. Call stop to end it.
func (v *View) Changes() (changed <-chan struct{}, stop func()) { return nil, func() {} }
