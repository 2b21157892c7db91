package disk

import (
	"context"

	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/services/hostd/internal/driver"
	"github.com/millrace/millrace/services/hostd/internal/driver/usage"
)

// growth measures by how much volumes grow while the disk runs short. A volume's files stay when
// a sandbox ends, so its growth counts, not its size. It is not for concurrent use.
type growth struct {
	g    *Guard
	last map[sandbox.VolumeID]*volumeGrowth
}

type volumeGrowth struct {
	disk       usage.Disk
	now, first driver.Stats // the current usage, and the first one
	measured   bool
}

// check measures the volumes that sandboxes use, and drops the others.
func (g *growth) check(ctx context.Context, all []*User) (grew []consumer) {
	ctx, cancel := context.WithTimeout(ctx, measureTimeout)
	defer cancel()
	before := g.last
	g.last = make(map[sandbox.VolumeID]*volumeGrowth)
	users := make(map[sandbox.VolumeID][]*User)
	for _, u := range all {
		for _, m := range u.Volumes {
			if !u.Suspended() && !u.Evicted.Load() {
				users[m.Volume] = append(users[m.Volume], u)
			}
		}
	}
	for id, of := range users {
		v := before[id]
		if v == nil {
			v = &volumeGrowth{}
		}
		if err := v.check(ctx, g.g.cfg.Volume(id)); err != nil {
			continue
		}
		g.last[id] = v
		grew = append(grew, consumer{users: of, volume: id, used: v.growth()})
	}
	return grew
}

func (v *volumeGrowth) check(ctx context.Context, path string) (err error) {
	v.now.DiskBytes, v.now.DiskFiles, err = v.disk.Of(ctx, path, 0)
	if err == nil && !v.measured {
		v.measured, v.first = true, v.now
	}
	return err
}

// growthWeight is the weight of a volume's growth against a sandbox's usage: a volume that fills
// a disk is found before sandboxes are evicted that used much of it before.
const growthWeight = 8

func (v *volumeGrowth) growth() driver.Stats {
	grew := func(at, from uint64) uint64 { return growthWeight * (at - min(at, from)) }
	return driver.Stats{DiskBytes: grew(v.now.DiskBytes, v.first.DiskBytes), DiskFiles: grew(v.now.DiskFiles, v.first.DiskFiles)}
}
