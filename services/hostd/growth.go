package hostd

import (
	"context"

	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/services/hostd/internal/driver"
	"github.com/millrace/millrace/services/hostd/internal/driver/usage"
)

// growth tells by how much volumes grow while the disk runs short. A volume's files stay
// when a sandbox ends, so that what it has says little, and what it grows by all. Not for
// concurrent use.
type growth struct {
	h  *host
	of map[sandbox.VolumeID]*grown
}

type grown struct {
	disk     usage.Disk
	at, from driver.Stats // what it has, and had at first
	seen     bool
}

// look measures the volumes that sandboxes use, and forgets the others.
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

// growthCounts is how many times what a volume grew by counts beside what a sandbox has:
// who fills a disk by a volume is found before those are ended that had much on it before.
const growthCounts = 8

func (v *grown) by() driver.Stats {
	grew := func(at, from uint64) uint64 { return growthCounts * (at - min(at, from)) }
	return driver.Stats{DiskBytes: grew(v.at.DiskBytes, v.from.DiskBytes), DiskFiles: grew(v.at.DiskFiles, v.from.DiskFiles)}
}
