package catalog

import (
	"context"
	"time"
)

// SweepPartsOlder is SweepParts with another age.
func (v *View) SweepPartsOlder(ctx context.Context, age time.Duration) (int, error) {
	return v.sweepParts(ctx, age)
}

// SweepSandboxesOlder is SweepRecords of sandboxes with another age.
func (v *View) SweepSandboxesOlder(ctx context.Context, age time.Duration) (int, error) {
	return v.sweepSandboxes(ctx, age)
}

// SweepSnapshotsOlder is SweepRecords of snapshots with another age.
func (v *View) SweepSnapshotsOlder(ctx context.Context, age time.Duration) (int, error) {
	return v.snapshots.SweepOlder(ctx, age)
}

// SweepVolumesOlder is SweepRecords of volumes with another age.
func (v *View) SweepVolumesOlder(ctx context.Context, age time.Duration) (int, error) {
	return v.volumes.SweepOlder(ctx, age)
}

// SweepSecretsOlder is SweepRecords of secrets with another age.
func (v *View) SweepSecretsOlder(ctx context.Context, age time.Duration) (int, error) {
	return v.secrets.SweepOlder(ctx, age)
}

// Forget calls forget.
func (v *View) Forget(before time.Time) { v.forget(before) }
