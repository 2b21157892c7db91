package hostd

import (
	"cmp"
	"context"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/sandbox"
)

// choose determines the driver that creates the sandbox, or has created it, and what the record
// will say of it. The scheduler has named it by this host's lease; the requirements are checked
// again, so that no sandbox ever gets less, whatever was out of date.
func (b *box) choose(ctx context.Context) error {
	name := cmp.Or(b.by, b.req.Driver)
	if b.driver != nil {
		name = b.driver.Name()
	}
	ctx, unwanted := b.wanted(ctx)
	defer unwanted()
	d, ok := b.h.awaitOffer(ctx, name)
	if !ok {
		return kind.Newf(kind.Invalid, "create", string(b.id), "the host has no driver %q", name)
	}
	if has := sandbox.Isolation(d.caps.Isolation); !has.AtLeast(b.req.Isolation) {
		return kind.Newf(kind.Invalid, "create", string(b.id), "driver %s gives isolation %q, not %q", d.Name(), has, b.req.Isolation)
	}
	if len(b.req.Volumes) > 0 && !d.caps.Volumes {
		return kind.Newf(kind.Invalid, "create", string(b.id), "driver %s does not support volumes here", d.Name())
	}
	enforced := d.caps.Enforced()
	if missing := sandbox.Missing(b.req.Demanded, enforced); len(missing) > 0 {
		return kind.Newf(kind.Unimplemented, "create", string(b.id), "driver %s cannot enforce these limits here: %s", d.Name(), limitNames(missing))
	}
	if b.driver == nil {
		b.driver = d.Driver
	}
	b.made = sandbox.Running{Driver: d.Name(), Isolation: sandbox.Isolation(d.caps.Isolation), Can: sandbox.Abilities{
		Pause: d.caps.Pause, Files: d.caps.Files,
		Memory: d.caps.Memory && len(b.req.Volumes) == 0, // restored processes would find other volumes
	}, CPUMilli: d.caps.CPUMilli, MemoryMiB: d.caps.MemoryMiB, Unenforced: sandbox.Missing(b.req.Limits(), enforced)}
	return nil
}

// offer returns the driver that created the sandbox with its capabilities; they are empty if it
// is not offered any more, or yet.
func (b *box) offer(ctx context.Context) offer {
	if o, ok := b.h.awaitOffer(ctx, b.driver.Name()); ok {
		return o
	}
	return offer{Driver: b.driver}
}
