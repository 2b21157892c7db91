package store

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"strconv"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/millrace/millrace/events/internal/restoring"
)

// shardsKey is the metadata key of the number of output streams, in the first of them:
// every service must distribute hosts alike.
const shardsKey = "millrace.shards"

// boundKey is the metadata key for the meaning of the first output stream's MaxBytes: all
// of the disk's capacity, or only its own share. restKey then holds the capacity for
// everything else, in bytes.
const (
	boundKey   = "millrace.bound"
	restKey    = "millrace.rest"
	boundWhole = "whole"
	boundShare = "share"
)

// maker creates streams and changes their settings.
type maker struct {
	js  jetstream.JetStream
	log *slog.Logger

	// attempt bounds one request by a time and by the life of the connection.
	attempt func(ctx context.Context, most time.Duration) (context.Context, context.CancelFunc)
}

// ensureAll creates the streams that are missing and leaves the others alone. It returns the
// number of output streams. It waits for the servers until ctx ends.
//
// The output comes first: a cluster places streams by what its servers last reported, so
// that streams created a moment ago would be overlooked. A server that has reserved more
// than it has refuses every change, even one that would release bytes.
func (m maker) ensureAll(ctx context.Context, cfg *Config) (shards int, err error) {
	if err := restoring.Check(ctx, m.js, m.log, func(try int) bool { return Backoff(ctx, max(try, 5)) }); err != nil {
		return 0, err
	}
	shards, rest, err := m.ensureOutput(ctx, cfg)
	if err != nil {
		return 0, err
	}
	fixed := fixedStreams(cfg)
	scaleLimits(fixed, rest/2) // the other half is for streams without a limit
	for _, sc := range m.missing(ctx, fixed) {
		if _, err := m.ensureShrinking(ctx, sc, capacityKnown); err != nil {
			return 0, err
		}
	}
	return shards, nil
}

// scaleLimits scales the limits of streams that reserve disk space down to capacity in total.
// Without it, the first stream would leave nothing to the last.
func scaleLimits(all []jetstream.StreamConfig, capacity int64) {
	var sum int64
	for i := range all {
		sum += reservedBytes(&all[i])
	}
	for i := range all {
		if sc := &all[i]; sum > capacity && reservedBytes(sc) > 0 {
			sc.MaxBytes = max(minStreamBytes, int64(float64(sc.MaxBytes)*float64(capacity)/float64(sum)))
		}
	}
}

func reservedBytes(sc *jetstream.StreamConfig) int64 {
	if sc.Storage != jetstream.FileStorage {
		return 0
	}
	return max(sc.MaxBytes, 0)
}

// missing returns those of the streams that do not exist, from one concurrent check of all.
func (m maker) missing(ctx context.Context, all []jetstream.StreamConfig) []jetstream.StreamConfig {
	ctx, cancel := m.attempt(ctx, ensureAttempt)
	defer cancel()
	exists := make([]bool, len(all))
	var wg sync.WaitGroup
	for i := range all {
		wg.Go(func() {
			_, err := m.js.Stream(ctx, all[i].Name)
			exists[i] = err == nil
		})
	}
	wg.Wait()
	var out []jetstream.StreamConfig
	for i := range all {
		if !exists[i] {
			out = append(out, all[i])
		}
	}
	return out
}

// ensureOutput creates the output streams. It returns their number and the disk capacity
// left for everything else.
func (m maker) ensureOutput(ctx context.Context, cfg *Config) (shards int, rest int64, err error) {
	sc := outConfig(cfg, 0, cfg.Shards)
	// The first stream reserves all capacity and then gives back the rest: everything else
	// must fit beside it.
	sc.MaxBytes = 2 * cfg.MaxOutput
	info, err := m.ensureShrinking(ctx, sc, 0)
	if err != nil {
		return 0, 0, err
	}
	shards, err = strconv.Atoi(info.Config.Metadata[shardsKey])
	if err != nil || shards < 1 {
		return 0, 0, fmt.Errorf("stream %s: %s is %q", info.Config.Name, shardsKey, info.Config.Metadata[shardsKey])
	}
	share := info.Config.MaxBytes
	if info.Config.Metadata[boundKey] == boundWhole {
		rest = reservedForRest(share)
		share = (share - rest) / int64(shards)
		if err := m.shrinkToShare(ctx, info.Config, share, rest); err != nil {
			return 0, 0, err
		}
	} else if rest, err = strconv.ParseInt(info.Config.Metadata[restKey], 10, 64); err != nil {
		return 0, 0, fmt.Errorf("stream %s: %s: %w", info.Config.Name, restKey, err)
	}
	for i := 1; i < shards; i++ {
		sc := outConfig(cfg, i, shards)
		sc.MaxBytes = share
		if _, err := m.ensureShrinking(ctx, sc, capacityKnown); err != nil {
			return 0, 0, err
		}
	}
	return shards, rest, nil
}

// reservedForRest returns how much of the capacity is for everything but output: half of it,
// mostly for templates and snapshots. On a small disk it is less, because there lost output
// hurts first: a fifth of 1 GiB, a quarter of 3 GiB.
func reservedForRest(capacity int64) int64 {
	const little = 8 << 30
	if capacity >= little {
		return capacity / 2
	}
	least := min(capacity-minStreamBytes, 8*minStreamBytes) // each of seven streams with a limit, and the others
	return max(least, min(capacity/2, 128<<20+capacity/2*(capacity>>20)/(little>>20)))
}

// shrinkToShare shrinks the first output stream to its share. Any service may do it; all compute
// the same share.
func (m maker) shrinkToShare(ctx context.Context, sc jetstream.StreamConfig, share, rest int64) error {
	sc.MaxBytes = share
	sc.Metadata = maps.Clone(sc.Metadata)
	sc.Metadata[boundKey], sc.Metadata[restKey] = boundShare, strconv.FormatInt(rest, 10)
	for try := 0; ; try++ {
		err := m.tryUpdate(ctx, sc)
		if err == nil {
			return nil
		}
		if try == logAfter {
			m.log.Warn("update stream failed, retrying", "stream", sc.Name, "err", err)
		}
		if !Backoff(ctx, max(try, 5)) {
			return fmt.Errorf("stream %s: %w", sc.Name, err)
		}
	}
}

func (m maker) tryUpdate(ctx context.Context, sc jetstream.StreamConfig) error {
	ctx, cancel := m.attempt(ctx, ensureAttempt)
	defer cancel()
	_, err := m.js.UpdateStream(ctx, sc)
	return err
}

// capacityKnown is how long a cluster takes until each server has the capacity of the others,
// which they exchange every ten seconds.
const capacityKnown = 15 * time.Second

// ensureShrinking is ensure for a stream whose bytes the servers reserve. If they have less,
// it makes the stream smaller; if they have too little for any, it waits until they have
// more or ctx ends. It trusts a cluster's report of too little capacity after it has been
// repeated for the duration of believe.
func (m maker) ensureShrinking(ctx context.Context, sc jetstream.StreamConfig, believe time.Duration) (*jetstream.StreamInfo, error) {
	for try := 0; ; try++ {
		info, err := m.tryShrinking(ctx, sc, believe)
		if !insufficientStorage(err) {
			return info, err
		}
		if try%logEvery == 0 {
			m.log.Warn("NATS has too little disk space for a stream, waiting", "stream", sc.Name, "bytes", minStreamBytes, "err", err)
		}
		if !Backoff(ctx, slowestTry) {
			return nil, err
		}
	}
}

const (
	slowestTry = 9   // attempts after which Backoff takes its longest
	logEvery   = 120 // such attempts: a minute
)

func (m maker) tryShrinking(ctx context.Context, sc jetstream.StreamConfig, believe time.Duration) (*jetstream.StreamInfo, error) {
	deadline := time.Now().Add(believe)
	return shrinkToFit(sc.MaxBytes, func(most int64) (*jetstream.StreamInfo, error) {
		sc.MaxBytes = most
		for try := 0; ; try++ {
			info, err := m.ensure(ctx, sc)
			if !isCode(err, errNoPeers) || !insufficientStorage(err) || time.Now().After(deadline) || !Backoff(ctx, try) {
				return info, err
			}
		}
	})
}

// logAfter is the number of attempts after which a missing stream is logged.
const logAfter = 10

// ensure returns the stream of that name, creating it from sc if necessary.
func (m maker) ensure(ctx context.Context, sc jetstream.StreamConfig) (*jetstream.StreamInfo, error) {
	for try := 0; ; try++ {
		info, err := m.tryEnsure(ctx, sc)
		if err == nil {
			return info, nil
		}
		if insufficientStorage(err) && sc.MaxBytes > 0 {
			return nil, fmt.Errorf("stream %s: %w", sc.Name, err)
		}
		if try == logAfter {
			m.log.Warn("stream unavailable, retrying", "stream", sc.Name, "err", err)
		}
		if !Backoff(ctx, max(try, 5)) {
			return nil, fmt.Errorf("stream %s: %w", sc.Name, err)
		}
	}
}

// ensureAttempt is longer than attempt: a cluster elects a new stream's leader first.
const ensureAttempt = 5 * time.Second

func (m maker) tryEnsure(ctx context.Context, sc jetstream.StreamConfig) (*jetstream.StreamInfo, error) {
	ctx, cancel := m.attempt(ctx, ensureAttempt)
	defer cancel()
	s, err := m.js.Stream(ctx, sc.Name)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		s, err = m.js.CreateStream(ctx, sc)
	}
	if err != nil {
		return nil, err
	}
	return s.CachedInfo(), nil
}
