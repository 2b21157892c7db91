package sandboxes

import (
	"cmp"
	"context"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/services/hostd/internal/drivers"
	"github.com/millrace/millrace/services/hostd/internal/lease"
)

// choose determines the driver that creates the sandbox, or has created it, and what the record
// will say of it. The scheduler has named it by this host's lease; the requirements are checked
// again, so that no sandbox ever gets less, whatever was out of date.
func (sb *hostSandbox) choose(ctx context.Context) error {
	name := cmp.Or(sb.driverName, sb.req.Driver)
	if sb.driver != nil {
		name = sb.driver.Name()
	}
	ctx, unwanted := sb.untilStop(ctx)
	defer unwanted()
	d, ok := sb.cfg.Drivers.Await(ctx, name)
	if !ok {
		return kind.Newf(kind.Invalid, "create", string(sb.id), "the host has no driver %q", name)
	}
	if has := sandbox.Isolation(d.Caps.Isolation); !has.AtLeast(sb.req.Isolation) {
		return kind.Newf(kind.Invalid, "create", string(sb.id), "driver %s gives isolation %q, not %q", d.Name(), has, sb.req.Isolation)
	}
	if len(sb.req.Volumes) > 0 && !d.Caps.Volumes {
		return kind.Newf(kind.Invalid, "create", string(sb.id), "driver %s does not support volumes here", d.Name())
	}
	enforced := d.Caps.Enforced()
	if missing := sandbox.Missing(sb.req.Demanded, enforced); len(missing) > 0 {
		return kind.Newf(kind.Unimplemented, "create", string(sb.id), "driver %s cannot enforce these limits here: %s", d.Name(), lease.LimitNames(missing))
	}
	if sb.driver == nil {
		sb.driver = d.Driver
	}
	sb.created = sandbox.Running{Driver: d.Name(), Isolation: sandbox.Isolation(d.Caps.Isolation), Can: sandbox.Abilities{
		Pause: d.Caps.Pause, Files: d.Caps.Files,
		Memory: d.Caps.Memory && len(sb.req.Volumes) == 0, // restored processes would find other volumes
	}, CPUMilli: d.Caps.CPUMilli, MemoryMiB: d.Caps.MemoryMiB, Unenforced: sandbox.Missing(sb.req.Limits(), enforced)}
	return nil
}

// offer returns the driver that created the sandbox with its capabilities; they are empty if it
// is not offered any more, or yet.
func (sb *hostSandbox) offer(ctx context.Context) drivers.Offer {
	if o, ok := sb.cfg.Drivers.Await(ctx, sb.driver.Name()); ok {
		return o
	}
	return drivers.Offer{Driver: sb.driver}
}
