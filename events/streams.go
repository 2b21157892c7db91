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

// shardsKey is where the first stream of the output remembers how many there
// are: every service must spread hosts alike.
const shardsKey = "millrace.shards"

// boundKey is where it remembers what its bound means: all the room there is, or its
// own share of the output. restKey is then the room for what is not output, in bytes.
const (
	boundKey   = "millrace.bound"
	restKey    = "millrace.rest"
	boundWhole = "whole"
	boundShare = "share"
)

const (
	auditAge   = 30 * 24 * time.Hour // of builds' records, and of sandboxes' that ended
	commandAge = 24 * time.Hour
	ioAge      = 10 * time.Minute
	ioBytes    = 256 << 20
	dedupe     = 2 * time.Minute

	// Tunnels are read at once or broken: what is kept is for whoever lags a little.
	tunnelAge   = time.Minute
	tunnelBytes = 64 << 20

	// commandBytes bounds what is kept of commands, which carry input: none is of
	// use for longer than seconds.
	commandBytes = 256 << 20
	// useBytes bounds what is kept of what sandboxes used: about a million samples.
	useBytes = 128 << 20
	// placeBytes bounds what is kept of where readers are: about 100,000 of them.
	placeBytes = 32 << 20
	// buildBytes bounds what is kept of builds, which is their logs.
	buildBytes = 256 << 20
	// hookBytes bounds what is kept of deliveries to webhooks: about 150,000 of them.
	hookBytes = 64 << 20
	// leastBytes is where a server counts as full rather than small.
	leastBytes = 8 << 20
)

// ensureStreams makes the streams that are missing; it waits for the servers
// until ctx ends, and leaves alone what is there.
//
// The output is first: a cluster places streams by what its servers last told of
// themselves, so others that were made a moment ago would be overlooked. A server
// that promised more than it has refuses every change, also the one that would
// give room back.
func (l *Log) ensureStreams(ctx context.Context, cfg Config) error {
	shards, rest, err := l.ensureOutput(ctx, cfg)
	if err != nil {
		return err
	}
	l.shards = shards
	fixed := fixedStreams(cfg)
	within(fixed, rest/2) // the other half is for what is not bounded
	for _, sc := range l.missing(ctx, fixed) {
		if _, err := l.ensureFitting(ctx, sc, roomKnown); err != nil {
			return err
		}
	}
	return nil
}

// within has the streams whose bytes are set aside on the disk take no more than room, all
// of them alike less: the first that asks would else leave nothing to the last.
func within(all []jetstream.StreamConfig, room int64) {
	var sum int64
	for i := range all {
		sum += setAside(&all[i])
	}
	for i := range all {
		if sc := &all[i]; sum > room && setAside(sc) > 0 {
			sc.MaxBytes = max(leastBytes, int64(float64(sc.MaxBytes)*float64(room)/float64(sum)))
		}
	}
}

func setAside(sc *jetstream.StreamConfig) int64 {
	if sc.Storage != jetstream.FileStorage {
		return 0
	}
	return max(sc.MaxBytes, 0)
}

// missing gives those streams that are not seen to be there, by one look at all.
func (l *Log) missing(ctx context.Context, all []jetstream.StreamConfig) []jetstream.StreamConfig {
	ctx, cancel := l.attemptFor(ctx, ensureAttempt)
	defer cancel()
	there := make([]bool, len(all))
	var wg sync.WaitGroup
	for i := range all {
		wg.Go(func() {
			s, err := l.js.Stream(ctx, all[i].Name)
			if there[i] = err == nil; there[i] {
				l.update(ctx, s.CachedInfo().Config, &all[i])
			}
		})
	}
	wg.Wait()
	var out []jetstream.StreamConfig
	for i := range all {
		if !there[i] {
			out = append(out, all[i])
		}
	}
	return out
}

// update changes what an earlier version configured in a way that costs data: an age after
// which records of running sandboxes were removed, and compression by the server. New blocks
// are written without compression; blocks that are compressed stay readable.
func (l *Log) update(ctx context.Context, sc jetstream.StreamConfig, want *jetstream.StreamConfig) {
	before := sc.Compression
	if sc.Compression = noCompression; want.MaxAge == 0 && sc.MaxAge != 0 {
		sc.MaxAge = 0
	} else if before == sc.Compression {
		return
	}
	if err := l.tryUpdate(ctx, sc); err != nil {
		l.log.Warn("update stream failed, the next start tries again", "stream", sc.Name, "err", err)
	}
}

// ensureOutput makes the streams of the output and tells how many there are, and what
// room is left for all else.
func (l *Log) ensureOutput(ctx context.Context, cfg Config) (shards int, rest int64, err error) {
	sc := outConfig(cfg, 0, cfg.Shards)
	// The first stream asks for all the room there is, and then gives back what is not
	// its own: all that is not output must fit beside it.
	sc.MaxBytes = 2 * cfg.MaxOutput
	info, err := l.ensureFitting(ctx, sc, 0)
	if err != nil {
		return 0, 0, err
	}
	shards, err = strconv.Atoi(info.Config.Metadata[shardsKey])
	if err != nil || shards < 1 {
		return 0, 0, fmt.Errorf("stream %s: %s is %q", info.Config.Name, shardsKey, info.Config.Metadata[shardsKey])
	}
	share := info.Config.MaxBytes
	rest = share * int64(shards) // of a stream that has no restKey
	if info.Config.Metadata[boundKey] == boundWhole {
		rest = besideOutput(share)
		share = (share - rest) / int64(shards)
		if err := l.giveBack(ctx, info.Config, share, rest); err != nil {
			return 0, 0, err
		}
	} else if n, err := strconv.ParseInt(info.Config.Metadata[restKey], 10, 64); err == nil {
		rest = n
	}
	for i := 1; i < shards; i++ {
		sc := outConfig(cfg, i, shards)
		sc.MaxBytes = share
		if _, err := l.ensureFitting(ctx, sc, roomKnown); err != nil {
			return 0, 0, err
		}
	}
	return shards, rest, nil
}

// besideOutput is how much of the room is for what is not output: half of it, for
// templates and snapshots most of all. Of little room it is less, because there
// output that goes is missed first: a fifth of 1 GiB, a quarter of 3 GiB.
func besideOutput(room int64) int64 {
	const little = 8 << 30
	if room >= little {
		return room / 2
	}
	least := min(room-leastBytes, 5*leastBytes) // each stream that is bounded needs some
	return max(least, min(room/2, 128<<20+room/2*(room>>20)/(little>>20)))
}

// giveBack leaves the first stream of the output its share. Whoever sees that it
// has not does it; all come to the same share.
func (l *Log) giveBack(ctx context.Context, sc jetstream.StreamConfig, share, rest int64) error {
	sc.MaxBytes = share
	sc.Metadata = maps.Clone(sc.Metadata)
	sc.Metadata[boundKey], sc.Metadata[restKey] = boundShare, strconv.FormatInt(rest, 10)
	for try := 0; ; try++ {
		err := l.tryUpdate(ctx, sc)
		if err == nil {
			return nil
		}
		if try == sayAfter {
			l.log.Warn("still trying to change a stream", "stream", sc.Name, "err", err)
		}
		if !pause(ctx, max(try, 5)) {
			return fmt.Errorf("stream %s: %w", sc.Name, err)
		}
	}
}

func (l *Log) tryUpdate(ctx context.Context, sc jetstream.StreamConfig) error {
	ctx, cancel := l.attemptFor(ctx, ensureAttempt)
	defer cancel()
	_, err := l.js.UpdateStream(ctx, sc)
	return err
}

// roomKnown is when all servers of a cluster know what room each of them has: they
// tell each other every ten seconds.
const roomKnown = 15 * time.Second

// fitting has do try with room for most bytes, and with an eighth less each time until
// the servers have it.
func fitting[T any](most int64, do func(most int64) (T, error)) (T, error) {
	for {
		got, err := do(most)
		if !noRoom(err) || most <= leastBytes {
			return got, err
		}
		most = max(most-most/8, leastBytes)
	}
}

// ensureFitting is ensure for what is bounded by a number of bytes that the
// servers set aside: where they have not so much room it is made smaller, and where
// they have too little for anything it waits until they have, or ctx ends. What a
// cluster says of its room is believed when it has said so for long enough.
func (l *Log) ensureFitting(ctx context.Context, sc jetstream.StreamConfig, believe time.Duration) (*jetstream.StreamInfo, error) {
	for try := 0; ; try++ {
		info, err := l.tryFitting(ctx, sc, believe)
		if !noRoom(err) {
			return info, err
		}
		if try%sayEvery == 0 {
			l.log.Warn("NATS has too little room for a stream, waiting for more", "stream", sc.Name, "bytes", leastBytes, "err", err)
		}
		if !pause(ctx, slowly) {
			return nil, err
		}
	}
}

const (
	slowly   = 9   // tries, after which pause takes its longest
	sayEvery = 120 // tries of that kind: a minute
)

func (l *Log) tryFitting(ctx context.Context, sc jetstream.StreamConfig, believe time.Duration) (*jetstream.StreamInfo, error) {
	deadline := time.Now().Add(believe)
	return fitting(sc.MaxBytes, func(most int64) (*jetstream.StreamInfo, error) {
		sc.MaxBytes = most
		for try := 0; ; try++ {
			info, err := l.ensure(ctx, sc)
			if !isCode(err, errNoPeers) || !noRoom(err) || time.Now().After(deadline) || !pause(ctx, try) {
				return info, err
			}
		}
	})
}

// JetStream's codes for too little room. A cluster says that no server will do,
// as it also does while it forms, and why.
const (
	errNoStorage jetstream.ErrorCode = 10047
	errNoPeers   jetstream.ErrorCode = 10005
)

// noRoom reports whether the servers cannot set aside what a stream asks for.
func noRoom(err error) bool {
	return isCode(err, errNoStorage) || isCode(err, errNoPeers) && strings.Contains(err.Error(), "insufficient storage")
}

// isCode reports whether the servers answered with one of the codes.
func isCode(err error, codes ...jetstream.ErrorCode) bool {
	var api *jetstream.APIError
	return errors.As(err, &api) && slices.Contains(codes, api.ErrorCode)
}

// sayAfter is how often a stream is tried for before that is worth a word.
const sayAfter = 10

// ensure gives a stream, made from sc if there is none of its name.
func (l *Log) ensure(ctx context.Context, sc jetstream.StreamConfig) (*jetstream.StreamInfo, error) {
	for try := 0; ; try++ {
		info, err := l.tryEnsure(ctx, sc)
		if err == nil {
			return info, nil
		}
		if noRoom(err) && sc.MaxBytes > 0 {
			return nil, fmt.Errorf("stream %s: %w", sc.Name, err)
		}
		if try == sayAfter {
			l.log.Warn("still waiting for a stream", "stream", sc.Name, "err", err)
		}
		if !pause(ctx, max(try, 5)) {
			return nil, fmt.Errorf("stream %s: %w", sc.Name, err)
		}
	}
}

// ensureAttempt is longer than attempt: a cluster that makes a stream elects its
// leader first.
const ensureAttempt = 5 * time.Second

func (l *Log) tryEnsure(ctx context.Context, sc jetstream.StreamConfig) (*jetstream.StreamInfo, error) {
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

// noCompression is the compression of every stream by the server: none. nats-server 2.15.2
// compresses blocks that it goes on writing to; a kill leaves such a block with a compressed
// head and raw records behind it, which no server can read again. Output is packed before it
// is stored (packBatch).
const noCompression = jetstream.NoCompression

// fileStream is what all streams at rest have in common: written once, never
// deleted from, read without consumers.
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
	// Without a bound one process that prints for ever fills the disk, and then
	// nothing can be stored any more, not even its end. What is oldest goes.
	sc.Discard = jetstream.DiscardOld
	sc.Metadata = map[string]string{shardsKey: strconv.Itoa(shards), boundKey: boundShare}
	if shard == 0 {
		sc.Metadata[boundKey] = boundWhole
	}
	return sc
}

// keepFor bounds how long messages are kept; repeats cannot be known for longer.
func keepFor(sc *jetstream.StreamConfig, age time.Duration) {
	sc.MaxAge, sc.Duplicates = age, min(dedupe, age)
}

func fixedStreams(cfg Config) []jetstream.StreamConfig {
	sandboxes := fileStream(cfg, streamSandboxes, "sbx.>") // see SweepRecords
	catalogue := fileStream(cfg, streamCatalogue, "proc.>")
	catalogue.MaxMsgsPerSubject = 1 // what is old goes by SweepCatalogue, after it was counted
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
	vault.MaxMsgsPerSubject = 1 // an older value goes when a newer one comes
	hooks := fileStream(cfg, streamHooks, "hook.>")
	hooks.MaxMsgsPerSubject = 1
	fixed := []jetstream.StreamConfig{
		sandboxes, catalogue, commands, hosts, accounts, secrets, snapshots, volumes, vault, builds, hooks,
		useStream(cfg), placesStream(cfg), hookLogStream(cfg),
	}
	return append(fixed, memoryStreams(cfg)...)
}

// useStream is what sandboxes used: a few hundred samples of each, which nobody
// follows.
func useStream(cfg Config) jetstream.StreamConfig {
	use := fileStream(cfg, streamUse, "use.>")
	keepFor(&use, cfg.Retention)
	use.MaxMsgsPerSubject, use.MaxBytes, use.Discard = MaxSamples, useBytes, jetstream.DiscardOld
	use.RePublish = nil
	return use
}

// placesStream is where the readers of watches are: nobody follows it.
func placesStream(cfg Config) jetstream.StreamConfig {
	places := fileStream(cfg, streamPlaces, "place.>")
	places.MaxAge, places.MaxBytes, places.Discard = auditAge, placeBytes, jetstream.DiscardOld
	places.MaxMsgsPerSubject = 1
	places.RePublish = nil
	return places
}

// hookLogStream holds the attempts to deliver events to webhooks.
func hookLogStream(cfg Config) jetstream.StreamConfig {
	attempts := fileStream(cfg, streamHookLog, "hooklog.>")
	attempts.MaxAge, attempts.MaxBytes, attempts.Discard = LifecycleAge, hookBytes, jetstream.DiscardOld
	attempts.MaxMsgsPerSubject = maxAttempts
	attempts.RePublish = nil
	return attempts
}

// memoryStreams are what is not kept: they live in memory.
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
