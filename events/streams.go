package events

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// shardsKey is where the first stream of the output remembers how many there
// are: every service must spread hosts alike.
const shardsKey = "millrace.shards"

const (
	auditAge   = 30 * 24 * time.Hour // of sandboxes' records
	commandAge = 24 * time.Hour
	ioAge      = 10 * time.Minute
	dedupe     = 2 * time.Minute

	// commandBytes bounds what is kept of commands, which carry input: none is of
	// use for longer than seconds.
	commandBytes = 1 << 30
	// leastOutput is where a server counts as full rather than small.
	leastOutput = 16 << 20
)

// ensureStreams makes the streams that are missing; it waits for the servers
// until ctx ends, and leaves alone what is there.
func (l *Log) ensureStreams(ctx context.Context, cfg Config) error {
	shards, err := l.ensureOutput(ctx, cfg)
	if err != nil {
		return err
	}
	l.shards = shards
	for _, sc := range fixedStreams(cfg) {
		if _, err := l.ensureFitting(ctx, sc); err != nil {
			return err
		}
	}
	return nil
}

// ensureOutput makes the streams of the output and tells how many there are.
func (l *Log) ensureOutput(ctx context.Context, cfg Config) (int, error) {
	info, err := l.ensureFitting(ctx, outConfig(cfg, 0, cfg.Shards))
	if err != nil {
		return 0, err
	}
	shards, err := strconv.Atoi(info.Config.Metadata[shardsKey])
	if err != nil || shards < 1 {
		return 0, fmt.Errorf("stream %s: %s is %q", info.Config.Name, shardsKey, info.Config.Metadata[shardsKey])
	}
	for i := 1; i < shards; i++ {
		if _, err := l.ensureFitting(ctx, outConfig(cfg, i, shards)); err != nil {
			return 0, err
		}
	}
	return shards, nil
}

// ensureFitting is ensure for what is bounded by a number of bytes that the
// servers set aside: where they have not so much room it is made smaller.
func (l *Log) ensureFitting(ctx context.Context, sc jetstream.StreamConfig) (*jetstream.StreamInfo, error) {
	for {
		info, err := l.ensure(ctx, sc)
		if !noRoom(err) || sc.MaxBytes/2 < leastOutput {
			return info, err
		}
		sc.MaxBytes /= 2
	}
}

// JetStream's codes for too little room. A cluster says that no server will do,
// as it also does while it forms, and why.
const (
	errNoStorage jetstream.ErrorCode = 10047
	errNoPeers   jetstream.ErrorCode = 10005
)

// noRoom reports whether the servers cannot set aside what a stream asks for.
func noRoom(err error) bool {
	var api *jetstream.APIError
	return errors.As(err, &api) && (api.ErrorCode == errNoStorage ||
		api.ErrorCode == errNoPeers && strings.Contains(api.Description, "insufficient storage"))
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

// fileStream is what all streams at rest have in common: written once, never
// deleted from, read without consumers.
func fileStream(cfg Config, name, subject string) jetstream.StreamConfig {
	return jetstream.StreamConfig{
		Name:        name,
		Subjects:    []string{subject},
		Retention:   jetstream.LimitsPolicy,
		Storage:     jetstream.FileStorage,
		Replicas:    cfg.Replicas,
		Compression: jetstream.S2Compression,
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
	sc.MaxBytes, sc.Discard = cfg.MaxOutput/int64(shards), jetstream.DiscardOld
	sc.Metadata = map[string]string{shardsKey: strconv.Itoa(shards)}
	return sc
}

// keepFor bounds how long messages are kept; repeats cannot be known for longer.
func keepFor(sc *jetstream.StreamConfig, age time.Duration) {
	sc.MaxAge, sc.Duplicates = age, min(dedupe, age)
}

func fixedStreams(cfg Config) []jetstream.StreamConfig {
	sandboxes := fileStream(cfg, streamSandboxes, "sbx.>")
	sandboxes.MaxAge = auditAge
	catalogue := fileStream(cfg, streamCatalogue, "proc.>")
	catalogue.MaxMsgsPerSubject = 1
	keepFor(&catalogue, cfg.Retention)
	commands := fileStream(cfg, streamCommands, "cmd.>")
	commands.MaxAge, commands.MaxBytes, commands.Discard = commandAge, commandBytes, jetstream.DiscardOld
	hosts := fileStream(cfg, streamHosts, "host.>")
	hosts.MaxMsgsPerSubject = 1
	accounts := fileStream(cfg, streamAccounts, "acct.>")
	secrets := fileStream(cfg, streamSecrets, "secret.>")
	secrets.RePublish = nil
	return []jetstream.StreamConfig{sandboxes, catalogue, commands, hosts, accounts, secrets, ioStream(cfg)}
}

// ioStream is what is not kept: it lives in memory.
func ioStream(cfg Config) jetstream.StreamConfig {
	io := fileStream(cfg, streamIO, "io.>")
	io.Storage, io.Compression, io.MaxAge, io.DenyDelete = jetstream.MemoryStorage, jetstream.NoCompression, ioAge, false
	io.MaxBytes, io.Discard = 256<<20, jetstream.DiscardOld
	return io
}
