package events

import (
	"context"
	"time"
)

// SweepPartsOlder is SweepParts with another age.
func (v *View) SweepPartsOlder(ctx context.Context, age time.Duration) (int, error) {
	return v.sweepParts(ctx, age)
}

// SweepSandboxesOlder is SweepSandboxes with another age.
func (v *View) SweepSandboxesOlder(ctx context.Context, age time.Duration) (int, error) {
	return v.sweepSandboxes(ctx, age)
}

// Forget is forget.
func (v *View) Forget(before time.Time) { v.forget(before) }

// How messages are packed.
var (
	PackBatch   = packBatch
	UnpackBatch = unpackBatch
	ParseBatch  = parseBatch
)
