package keystore

import (
	"cmp"
	"context"
	"slices"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/millrace/millrace/events/internal/store"
	"github.com/millrace/millrace/events/internal/streams"
	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/seal"
	pb "github.com/millrace/millrace/schema/event/v1"
)

// Report says which keys a running service can open.
type Report struct {
	Service string   // role and machine
	Masters []string // ids of its master keys, the current one first
	Data    uint32   // current data key, if it can open that; 0: it cannot
	Problem string   // why it cannot
}

const (
	reportPrefix = "io.keys."
	maxReports   = 4096

	// reportsKept is for how many intervals a report counts: a service that misses two is gone.
	reportsKept = 3
)

// Announce reports every interval which keys the service can open, until ctx ends. It reads the
// master key each time.
func (k *Keys) Announce(ctx context.Context, service string, every time.Duration) {
	t := time.NewTicker(every)
	defer t.Stop()
	for {
		if err := k.announce(ctx, service, every); err != nil && ctx.Err() == nil {
			k.conn.Log().Debug("report keys failed", "err", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
	}
}

func (k *Keys) announce(ctx context.Context, service string, every time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, reloadTimeout)
	defer cancel()
	at, ok, err := k.stored(ctx)
	if err != nil || !ok {
		return err
	}
	b := &pb.KeyReport{Service: service, EveryNs: int64(every)}
	b.Masters, err = k.canOpen(ctx, at.set)
	if err != nil {
		b.Problem = kind.Message(err)
	} else {
		b.Data = at.set.Current
	}
	data, err := proto.Marshal(b)
	if err != nil {
		return err
	}
	_, err = k.conn.PublishPlain(ctx, reportPrefix+k.conn.ID(), data)
	return err
}

// canOpen returns the ids of the service's master keys, and an error if they do not open a set.
func (k *Keys) canOpen(ctx context.Context, set *seal.Set) ([]string, error) {
	if k.source == nil {
		return nil, seal.Missing("no master key is set")
	}
	master, err := k.source(ctx, false)
	if err != nil {
		return nil, err
	}
	_, err = set.Ring(master)
	return master.IDs(), err
}

// Reports returns the last report of each running service that announces itself, by its name.
func (k *Keys) Reports(ctx context.Context) ([]Report, error) {
	all, err := k.conn.DirectGet(ctx, streams.IO, store.GetRequest{Lasts: []string{reportPrefix + "*"}, Batch: maxReports})
	if err != nil {
		return nil, store.Unavailable("read reports", streams.IO, err)
	}
	return running(all), nil
}

// running decodes reports that are not too old. Times are compared with that of the newest one,
// because clocks differ.
func running(all []store.Message) []Report {
	var now time.Time
	for i := range all {
		if all[i].Time.After(now) {
			now = all[i].Time
		}
	}
	var out []Report
	for i := range all {
		var b pb.KeyReport
		if proto.Unmarshal(all[i].Data, &b) != nil || now.Sub(all[i].Time) > reportsKept*time.Duration(b.EveryNs) {
			continue
		}
		out = append(out, Report{Service: b.Service, Masters: b.Masters, Data: b.Data, Problem: b.Problem})
	}
	slices.SortFunc(out, func(a, b Report) int { return cmp.Compare(a.Service, b.Service) })
	return out
}
