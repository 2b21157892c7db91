package hostd

import (
	"context"

	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/services/hostd/internal/driver"
	"github.com/millrace/millrace/services/hostd/internal/driver/usage"
)

// growth measures by how much volumes grow while the disk runs short. A volume's files stay when
// a sandbox ends, so its growth counts, not its size. It is not for concurrent use.
type growth struct {
	h  *host
	of map[sandbox.VolumeID]*grown
}

type grown struct {
	disk     usage.Disk
	at, from driver.Stats // the current usage, and the first one
	seen     bool
}

// check measures the volumes that sandboxes use, and drops the others.
func (g *growth) look(ctx context.Context, boxes []*box) []holding {
	ctx, cancel := context.WithTimeout(ctx, measureTimeout)
	defer cancel()
	before := g.of
	g.of = make(map[sandbox.VolumeID]*grown)
	users := make(map[sandbox.VolumeID][]*box)
	for _, b := range boxes {
		for _, m := range b.req.Volumes {
			if !b.standing() && !b.evicted.Load() {
				users[m.Volume] = append(users[m.Volume], b)
			}
		}
	}
	var all []holding
	for id, who := range users {
		v := before[id]
		if v == nil {
			v = &grown{}
		}
		if err := v.look(ctx, g.h.volumePath(id)); err != nil {
			continue
		}
		g.of[id] = v
		all = append(all, holding{boxes: who, volume: id, has: v.by()})
	}
	return all
}

func (v *grown) look(ctx context.Context, path string) (err error) {
	v.at.DiskBytes, v.at.DiskFiles, err = v.disk.Of(ctx, path, 0)
	if err == nil && !v.seen {
		v.seen, v.from = true, v.at
	}
	return err
}

// growthCounts is the weight of a volume's growth against a sandbox's usage: a volume that fills
// a disk is found before sandboxes are evicted that used much of it before.
const growthCounts = 8

func (v *grown) by() driver.Stats {
	grew := func(at, from uint64) uint64 { return growthCounts * (at - min(at, from)) }
	return driver.Stats{DiskBytes: grew(v.at.DiskBytes, v.from.DiskBytes), DiskFiles: grew(v.at.DiskFiles, v.from.DiskFiles)}
}
