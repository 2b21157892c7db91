package events

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"
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

const (
	auditAge   = 30 * 24 * time.Hour // of builds' records, and of ended sandboxes' records
	commandAge = 24 * time.Hour
	ioAge      = 10 * time.Minute
	ioBytes    = 256 << 20
	dedupe     = 2 * time.Minute

	// Tunnels are read at once or they break: the rest is for readers that lag a little.
	tunnelAge   = time.Minute
	tunnelBytes = 64 << 20

	// commandBytes bounds the commands, which carry input. A command is used for seconds
	// only.
	commandBytes = 256 << 20
	// useBytes bounds the samples of resource use: about a million samples.
	useBytes = 128 << 20
	// positionBytes bounds the positions of readers: about 100,000.
	positionBytes = 32 << 20
	// buildBytes bounds the records of builds, mostly their logs.
	buildBytes = 256 << 20
	// hookBytes bounds the attempts to deliver to webhooks: about 150,000.
	hookBytes = 64 << 20
	// minStreamBytes is the size below which a server counts as full, not as small.
	minStreamBytes = 8 << 20
)

// streamMaker creates streams and changes their settings.
type streamMaker struct{ *conn }

// ensureStreams creates the streams that are missing and leaves the others alone. It waits
// for the servers until ctx ends.
//
// The output comes first: a cluster places streams by what its servers last reported, so
// that streams created a moment ago would be overlooked. A server that has reserved more
// than it has refuses every change, even one that would release bytes.
func (l streamMaker) ensureStreams(ctx context.Context, cfg Config) error {
	shards, rest, err := l.ensureOutput(ctx, cfg)
	if err != nil {
		return err
	}
	l.shards = shards
	fixed := fixedStreams(cfg)
	scaleLimits(fixed, rest/2) // the other half is for streams without a limit
	for _, sc := range l.missing(ctx, fixed) {
		if _, err := l.ensureShrinking(ctx, sc, capacityKnown); err != nil {
			return err
		}
	}
	return nil
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
func (l streamMaker) missing(ctx context.Context, all []jetstream.StreamConfig) []jetstream.StreamConfig {
	ctx, cancel := l.attemptFor(ctx, ensureAttempt)
	defer cancel()
	exists := make([]bool, len(all))
	var wg sync.WaitGroup
	for i := range all {
		wg.Go(func() {
			s, err := l.js.Stream(ctx, all[i].Name)
			if exists[i] = err == nil; exists[i] {
				l.update(ctx, s.CachedInfo().Config, &all[i])
			}
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

// update changes settings of an earlier version that cost data: an age limit that removed
// records of running sandboxes, and compression by the server. New blocks are written
// uncompressed; compressed blocks stay readable.
func (l streamMaker) update(ctx context.Context, sc jetstream.StreamConfig, want *jetstream.StreamConfig) {
	before := sc.Compression
	if sc.Compression = noCompression; want.MaxAge == 0 && sc.MaxAge != 0 {
		sc.MaxAge = 0
	} else if before == sc.Compression {
		return
	}
	if err := l.tryUpdate(ctx, sc); err != nil {
		l.log.Warn("update stream failed; the next start retries", "stream", sc.Name, "err", err)
	}
}

// ensureOutput creates the output streams. It returns their number and the disk capacity
// left for everything else.
func (l streamMaker) ensureOutput(ctx context.Context, cfg Config) (shards int, rest int64, err error) {
	sc := outConfig(cfg, 0, cfg.Shards)
	// The first stream reserves all capacity and then gives back the rest: everything else
	// must fit beside it.
	sc.MaxBytes = 2 * cfg.MaxOutput
	info, err := l.ensureShrinking(ctx, sc, 0)
	if err != nil {
		return 0, 0, err
	}
	shards, err = strconv.Atoi(info.Config.Metadata[shardsKey])
	if err != nil || shards < 1 {
		return 0, 0, fmt.Errorf("stream %s: %s is %q", info.Config.Name, shardsKey, info.Config.Metadata[shardsKey])
	}
	share := info.Config.MaxBytes
	rest = share * int64(shards) // of a stream without restKey
	if info.Config.Metadata[boundKey] == boundWhole {
		rest = reservedForRest(share)
		share = (share - rest) / int64(shards)
		if err := l.shrinkToShare(ctx, info.Config, share, rest); err != nil {
			return 0, 0, err
		}
	} else if n, err := strconv.ParseInt(info.Config.Metadata[restKey], 10, 64); err == nil {
		rest = n
	}
	for i := 1; i < shards; i++ {
		sc := outConfig(cfg, i, shards)
		sc.MaxBytes = share
		if _, err := l.ensureShrinking(ctx, sc, capacityKnown); err != nil {
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
	least := min(capacity-minStreamBytes, 5*minStreamBytes) // each stream with a limit needs some
	return max(least, min(capacity/2, 128<<20+capacity/2*(capacity>>20)/(little>>20)))
}

// shrinkToShare shrinks the first output stream to its share. Any service may do it; all compute
// the same share.
func (l streamMaker) shrinkToShare(ctx context.Context, sc jetstream.StreamConfig, share, rest int64) error {
	sc.MaxBytes = share
	sc.Metadata = maps.Clone(sc.Metadata)
	sc.Metadata[boundKey], sc.Metadata[restKey] = boundShare, strconv.FormatInt(rest, 10)
	for try := 0; ; try++ {
		err := l.tryUpdate(ctx, sc)
		if err == nil {
			return nil
		}
		if try == logAfter {
			l.log.Warn("update stream failed, retrying", "stream", sc.Name, "err", err)
		}
		if !backoff(ctx, max(try, 5)) {
			return fmt.Errorf("stream %s: %w", sc.Name, err)
		}
	}
}

func (l streamMaker) tryUpdate(ctx context.Context, sc jetstream.StreamConfig) error {
	ctx, cancel := l.attemptFor(ctx, ensureAttempt)
	defer cancel()
	_, err := l.js.UpdateStream(ctx, sc)
	return err
}

// capacityKnown is how long a cluster takes until each server has the capacity of the others,
// which they exchange every ten seconds.
const capacityKnown = 15 * time.Second

// shrinkToFit calls do with most bytes, and with an eighth less each time until the servers can
// reserve them.
func shrinkToFit[T any](most int64, do func(most int64) (T, error)) (T, error) {
	for {
		got, err := do(most)
		if !insufficientStorage(err) || most <= minStreamBytes {
			return got, err
		}
		most = max(most-most/8, minStreamBytes)
	}
}

// ensureShrinking is ensure for a stream whose bytes the servers reserve. If they have less,
// it makes the stream smaller; if they have too little for any, it waits until they have
// more or ctx ends. It trusts a cluster's report of too little capacity after it has been
// repeated for the duration of believe.
func (l streamMaker) ensureShrinking(ctx context.Context, sc jetstream.StreamConfig, believe time.Duration) (*jetstream.StreamInfo, error) {
	for try := 0; ; try++ {
		info, err := l.tryShrinking(ctx, sc, believe)
		if !insufficientStorage(err) {
			return info, err
		}
		if try%logEvery == 0 {
			l.log.Warn("NATS has too little disk space for a stream, waiting", "stream", sc.Name, "bytes", minStreamBytes, "err", err)
		}
		if !backoff(ctx, slowestTry) {
			return nil, err
		}
	}
}

const (
	slowestTry = 9   // attempts after which backoff takes its longest
	logEvery   = 120 // such attempts: a minute
)

func (l streamMaker) tryShrinking(ctx context.Context, sc jetstream.StreamConfig, believe time.Duration) (*jetstream.StreamInfo, error) {
	deadline := time.Now().Add(believe)
	return shrinkToFit(sc.MaxBytes, func(most int64) (*jetstream.StreamInfo, error) {
		sc.MaxBytes = most
		for try := 0; ; try++ {
			info, err := l.ensure(ctx, sc)
			if !isCode(err, errNoPeers) || !insufficientStorage(err) || time.Now().After(deadline) || !backoff(ctx, try) {
				return info, err
			}
		}
	})
}

// Error codes of JetStream for too little storage. A cluster reports that no server is
// suitable, as it also does while it forms, and the reason.
const (
	errNoStorage jetstream.ErrorCode = 10047
	errNoPeers   jetstream.ErrorCode = 10005
)

// insufficientStorage reports whether the servers cannot reserve a stream's bytes.
func insufficientStorage(err error) bool {
	return isCode(err, errNoStorage) || isCode(err, errNoPeers) && strings.Contains(err.Error(), "insufficient storage")
}

// isCode reports whether err is an answer of the servers with one of the codes.
func isCode(err error, codes ...jetstream.ErrorCode) bool {
	var api *jetstream.APIError
	return errors.As(err, &api) && slices.Contains(codes, api.ErrorCode)
}

// logAfter is the number of attempts after which a missing stream is logged.
const logAfter = 10

// ensure returns the stream of that name, creating it from sc if necessary.
func (l streamMaker) ensure(ctx context.Context, sc jetstream.StreamConfig) (*jetstream.StreamInfo, error) {
	for try := 0; ; try++ {
		info, err := l.tryEnsure(ctx, sc)
		if err == nil {
			return info, nil
		}
		if insufficientStorage(err) && sc.MaxBytes > 0 {
			return nil, fmt.Errorf("stream %s: %w", sc.Name, err)
		}
		if try == logAfter {
			l.log.Warn("stream unavailable, retrying", "stream", sc.Name, "err", err)
		}
		if !backoff(ctx, max(try, 5)) {
			return nil, fmt.Errorf("stream %s: %w", sc.Name, err)
		}
	}
}

// ensureAttempt is longer than attempt: a cluster elects a new stream's leader first.
const ensureAttempt = 5 * time.Second

func (l streamMaker) tryEnsure(ctx context.Context, sc jetstream.StreamConfig) (*jetstream.StreamInfo, error) {
	ctx, cancel := l.attemptFor(ctx, ensureAttempt)
	defer cancel()
	s, err := l.js.Stream(ctx, sc.Name)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		s, err = l.js.CreateStream(ctx, sc)
	}
	if err != nil {
		return nil, err
	}
	return s.CachedInfo(), nil
}

// noCompression disables compression by the server for every stream. nats-server 2.15.2
// compresses blocks that it still appends to. A kill leaves such a block with a compressed
// head and raw records behind it, which no server can read again. Output is compressed
// before it is stored (codec.PackBatch).
const noCompression = jetstream.NoCompression

// fileStream returns the settings that all file streams share: written once, never deleted
// from, read without consumers.
func fileStream(cfg Config, name, subject string) jetstream.StreamConfig {
	return jetstream.StreamConfig{
		Name:        name,
		Subjects:    []string{subject},
		Retention:   jetstream.LimitsPolicy,
		Storage:     jetstream.FileStorage,
		Replicas:    cfg.Replicas,
		Compression: noCompression,
		AllowDirect: true,
		DenyDelete:  true,
		Duplicates:  dedupe,
		RePublish:   &jetstream.RePublish{Source: subject, Destination: livePrefix + subject},
	}
}

func outConfig(cfg Config, shard, shards int) jetstream.StreamConfig {
	sc := fileStream(cfg, outStream(shard), fmt.Sprintf("out.%02x.*.*.*", shard))
	sc.RePublish = &jetstream.RePublish{Source: "out.>", Destination: "live.out.>"}
	keepFor(&sc, cfg.Retention)
	// Without a limit, one process that prints for ever fills the disk, and then nothing
	// can be stored any more, not even its end. The oldest output is dropped.
	sc.Discard = jetstream.DiscardOld
	sc.Metadata = map[string]string{shardsKey: strconv.Itoa(shards), boundKey: boundShare}
	if shard == 0 {
		sc.Metadata[boundKey] = boundWhole
	}
	return sc
}

// keepFor sets how long messages are kept. Duplicates cannot be detected for longer.
func keepFor(sc *jetstream.StreamConfig, age time.Duration) {
	sc.MaxAge, sc.Duplicates = age, min(dedupe, age)
}

func fixedStreams(cfg Config) []jetstream.StreamConfig {
	sandboxes := fileStream(cfg, streamSandboxes, "sbx.>") // see SweepRecords
	catalogue := fileStream(cfg, streamCatalogue, "proc.>")
	catalogue.MaxMsgsPerSubject = 1 // SweepCatalogue counts old entries, then drops them
	commands := fileStream(cfg, streamCommands, "cmd.>")
	commands.MaxAge, commands.MaxBytes, commands.Discard = commandAge, commandBytes, jetstream.DiscardOld
	hosts := fileStream(cfg, streamHosts, "host.>")
	hosts.MaxMsgsPerSubject = 1
	accounts := fileStream(cfg, streamAccounts, "acct.>")
	secrets := fileStream(cfg, streamSecrets, "secret.>")
	secrets.RePublish = nil
	snapshots := fileStream(cfg, streamSnapshots, "snap.>")
	snapshots.MaxMsgsPerSubject = 1
	volumes := fileStream(cfg, streamVolumes, "vol.>")
	volumes.MaxMsgsPerSubject = 1
	builds := fileStream(cfg, streamBuilds, "build.>")
	builds.MaxAge, builds.MaxBytes, builds.Discard = auditAge, buildBytes, jetstream.DiscardOld
	vault := fileStream(cfg, streamVault, "vault.>")
	vault.MaxMsgsPerSubject = 1 // a new value replaces the older one
	hooks := fileStream(cfg, streamHooks, "hook.>")
	hooks.MaxMsgsPerSubject = 1
	fixed := []jetstream.StreamConfig{
		sandboxes, catalogue, commands, hosts, accounts, secrets, snapshots, volumes, vault, builds, hooks,
		useStream(cfg), positionsStream(cfg), hookLogStream(cfg),
	}
	return append(fixed, memoryStreams(cfg)...)
}

// useStream stores samples of the resource use of sandboxes, a few hundred of each. It is
// not republished.
func useStream(cfg Config) jetstream.StreamConfig {
	use := fileStream(cfg, streamUse, "use.>")
	keepFor(&use, cfg.Retention)
	use.MaxMsgsPerSubject, use.MaxBytes, use.Discard = MaxSamples, useBytes, jetstream.DiscardOld
	use.RePublish = nil
	return use
}

// positionsStream stores the positions of the readers of watches. It is not republished.
func positionsStream(cfg Config) jetstream.StreamConfig {
	positions := fileStream(cfg, streamPositions, "place.>")
	positions.MaxAge, positions.MaxBytes, positions.Discard = auditAge, positionBytes, jetstream.DiscardOld
	positions.MaxMsgsPerSubject = 1
	positions.RePublish = nil
	return positions
}

// hookLogStream stores the attempts to deliver events to webhooks.
func hookLogStream(cfg Config) jetstream.StreamConfig {
	attempts := fileStream(cfg, streamHookLog, "hooklog.>")
	attempts.MaxAge, attempts.MaxBytes, attempts.Discard = LifecycleAge, hookBytes, jetstream.DiscardOld
	attempts.MaxMsgsPerSubject = maxAttempts
	attempts.RePublish = nil
	return attempts
}

// memoryStreams returns the streams that are kept in memory only.
func memoryStreams(cfg Config) []jetstream.StreamConfig {
	io := memoryStream(cfg, streamIO, "io.>", ioBytes, ioAge)
	return []jetstream.StreamConfig{io, memoryStream(cfg, streamTunnels, tunnelPrefix+">", tunnelBytes, tunnelAge)}
}

func memoryStream(cfg Config, name, subject string, size int64, age time.Duration) jetstream.StreamConfig {
	sc := fileStream(cfg, name, subject)
	sc.Storage, sc.DenyDelete = jetstream.MemoryStorage, false
	sc.MaxBytes, sc.Discard = size, jetstream.DiscardOld
	keepFor(&sc, age)
	return sc
}
