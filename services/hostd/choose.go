package hostd

import (
	"cmp"
	"context"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/sandbox"
)

// choose finds the driver that is to make the sandbox, or has made it, and says what the
// record will of it. The scheduler has named it by what this host said of itself; what is
// demanded is looked at again, so that no sandbox ever has less, whoever was wrong.
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
		return kind.Newf(kind.Invalid, "create", string(b.id), "driver %s cannot show volumes here", d.Name())
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
		Memory: d.caps.Memory && len(b.req.Volumes) == 0, // processes that go on find no other volumes
	}, CPUMilli: d.caps.CPUMilli, MemoryMiB: d.caps.MemoryMiB, Unenforced: sandbox.Missing(b.req.Limits(), enforced)}
	return nil
}

// offer is the driver that made the sandbox, as it is offered. Of one that is not, any
// more or yet, nothing is known.
func (b *box) offer(ctx context.Context) offer {
	if o, ok := b.h.awaitOffer(ctx, b.driver.Name()); ok {
		return o
	}
	return offer{Driver: b.driver}
}
