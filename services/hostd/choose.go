package hostd

import (
	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/sandbox"
)

// choose finds the driver that is to make the sandbox. The scheduler has named
// it by what this host said of itself; what is demanded is looked at again, so
// that no sandbox ever has less, whoever was wrong.
func (b *box) choose() error {
	name := b.by
	if name == "" {
		name = b.req.Driver
	}
	d, ok := b.h.offer(name)
	if !ok {
		return kind.Newf(kind.Invalid, "create", string(b.id), "the host has no driver %q", name)
	}
	if has := sandbox.Isolation(d.caps.Isolation); !has.AtLeast(b.req.Isolation) {
		return kind.Newf(kind.Invalid, "create", string(b.id), "driver %s gives isolation %q, not %q", d.Name(), has, b.req.Isolation)
	}
	if len(b.req.Volumes) > 0 && !d.caps.Volumes {
		return kind.Newf(kind.Invalid, "create", string(b.id), "driver %s cannot show volumes here", d.Name())
	}
	b.driver = d.Driver
	return nil
}
