package events

import (
	"context"
	"errors"
	"fmt"
	"strconv"
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
		if _, err := l.ensure(ctx, sc); err != nil {
			return err
		}
	}
	return nil
}

// ensureOutput makes the streams of the output and tells how many there are.
func (l *Log) ensureOutput(ctx context.Context, cfg Config) (int, error) {
	info, err := l.ensure(ctx, outConfig(cfg, 0, cfg.Shards))
	if err != nil {
		return 0, err
	}
	shards, err := strconv.Atoi(info.Config.Metadata[shardsKey])
	if err != nil || shards < 1 {
		return 0, fmt.Errorf("stream %s: %s is %q", info.Config.Name, shardsKey, info.Config.Metadata[shardsKey])
	}
	for i := 1; i < shards; i++ {
		if _, err := l.ensure(ctx, outConfig(cfg, i, shards)); err != nil {
			return 0, err
		}
	}
	return shards, nil
}

// ensure gives a stream, made from sc if there is none of its name.
func (l *Log) ensure(ctx context.Context, sc jetstream.StreamConfig) (*jetstream.StreamInfo, error) {
	for try := 0; ; try++ {
		info, err := l.tryEnsure(ctx, sc)
		if err == nil {
			return info, nil
		}
		if !pause(ctx, max(try, 5)) {
			return nil, fmt.Errorf("stream %s: %w", sc.Name, err)
		}
	}
}

func (l *Log) tryEnsure(ctx context.Context, sc jetstream.StreamConfig) (*jetstream.StreamInfo, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
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
		Duplicates:  2 * time.Minute,
		RePublish:   &jetstream.RePublish{Source: subject, Destination: livePrefix + subject},
	}
}

func outConfig(cfg Config, shard, shards int) jetstream.StreamConfig {
	sc := fileStream(cfg, outStream(shard), fmt.Sprintf("out.%02x.*.*.*", shard))
	sc.RePublish = &jetstream.RePublish{Source: "out.>", Destination: "live.out.>"}
	sc.MaxAge = cfg.Retention
	sc.Metadata = map[string]string{shardsKey: strconv.Itoa(shards)}
	return sc
}

func fixedStreams(cfg Config) []jetstream.StreamConfig {
	sandboxes := fileStream(cfg, streamSandboxes, "sbx.>")
	sandboxes.MaxAge = auditAge
	catalogue := fileStream(cfg, streamCatalogue, "proc.>")
	catalogue.MaxAge, catalogue.MaxMsgsPerSubject = cfg.Retention, 1
	commands := fileStream(cfg, streamCommands, "cmd.>")
	commands.MaxAge = commandAge
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
