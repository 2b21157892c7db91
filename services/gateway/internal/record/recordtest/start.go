package recordtest

import (
	"bytes"
	"context"
	"fmt"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/process"
	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/services/gateway/internal/core"
	"github.com/millrace/millrace/services/gateway/internal/procs"
	"github.com/millrace/millrace/services/gateway/internal/stream"
)

// Start appends Accepted; the test appends the events that follow.
func (b *Gateway) Start(ctx context.Context, p core.Principal, sbx sandbox.ID, spec process.Spec, opt procs.StartOptions) (process.ID, stream.Source, error) {
	if err := spec.Validate(); err != nil {
		return "", nil, err
	}
	id, again, err := b.claim(p, sbx, spec, opt.IdempotencyKey)
	if err != nil {
		return "", nil, err
	}
	if !again {
		b.Append(id, process.Accepted{Spec: spec.Public(), SpecHash: process.AppendSpec(nil, &spec), Tenant: Tenant})
		if b.OnStart != nil {
			b.OnStart(id, spec)
		}
	}
	src, err := b.Read(ctx, p, id, 0)
	return id, src, err
}

func (b *Gateway) claim(p core.Principal, sbx sandbox.ID, spec process.Spec, key string) (id process.ID, again bool, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.runs(p, sbx) {
		return "", false, kind.New(kind.NotFound, "start", string(sbx), "sandbox not found")
	}
	if id, again = b.keys[key]; again {
		if !bytes.Equal(b.records[id].hash, process.AppendSpec(nil, &spec)) {
			return "", false, kind.New(kind.Conflict, "start", string(id), "the idempotency key was used with another command")
		}
		return id, true, nil
	}
	id = process.NewID(sbx)
	b.of(id).hash = process.AppendSpec(nil, &spec)
	if key != "" {
		b.keys[key] = id
	}
	return id, false, nil
}

func (b *Gateway) runs(p core.Principal, sbx sandbox.ID) bool {
	for _, s := range b.sandboxes {
		if s.ID == sbx && p.Tenant == s.Tenant {
			return true
		}
	}
	return false
}

// Sandboxes is like [lifecycle.Lifecycle.Sandboxes].
func (b *Gateway) Sandboxes(p core.Principal, keep func(*sandbox.State) bool) []sandbox.State {
	b.mu.Lock()
	defer b.mu.Unlock()
	var out []sandbox.State
	for i := range b.sandboxes {
		if b.sandboxes[i].Tenant == p.Tenant && keep(&b.sandboxes[i]) {
			out = append(out, b.sandboxes[i])
		}
	}
	return out
}

// Find is like [procs.Procs.Find].
func (b *Gateway) Find(_ context.Context, p core.Principal, sbx sandbox.ID, sel procs.Selector) (process.Summary, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for id, r := range b.records {
		if p.Tenant == Tenant && id.Sandbox() == sbx && (sel.ID == id || sel.PID != 0 && sel.PID == r.sum.PID || sel.Tag != nil && r.sum.Spec.Tag != nil && *sel.Tag == *r.sum.Spec.Tag) {
			return r.sum, nil
		}
	}
	return process.Summary{}, kind.New(kind.NotFound, "find process", string(sbx), "process not found")
}

// Signal logs the call.
func (b *Gateway) Signal(_ context.Context, p core.Principal, id process.ID, sig int32) error {
	return b.log(p, id, fmt.Sprintf("signal %d", sig))
}

// SendInput logs the call.
func (b *Gateway) SendInput(_ context.Context, p core.Principal, id process.ID, data []byte, eof bool) error {
	return b.log(p, id, fmt.Sprintf("stdin %q eof=%v", data, eof))
}

// SendInputOnce logs the call; retries are not detected.
func (b *Gateway) SendInputOnce(_ context.Context, p core.Principal, id process.ID, key string, data []byte, eof bool) error {
	return b.log(p, id, fmt.Sprintf("stdin %q eof=%v key=%s", data, eof, key))
}

// Resize logs the call.
func (b *Gateway) Resize(_ context.Context, p core.Principal, id process.ID, size process.Size) error {
	return b.log(p, id, fmt.Sprintf("resize %dx%d", size.Cols, size.Rows))
}

func (b *Gateway) log(p core.Principal, id process.ID, call string) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	r, err := b.find(p, id)
	if err != nil {
		return err
	}
	if !r.sum.Active() {
		return kind.New(kind.NotFound, "call", string(id), "process not found")
	}
	b.Calls = append(b.Calls, call)
	return nil
}
