package store

import (
	"fmt"
	"strconv"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/millrace/millrace/events/internal/streams"
)

// Ages and sizes at which streams drop messages.
const (
	ioAge   = 10 * time.Minute
	ioBytes = 256 << 20
	dedupe  = 2 * time.Minute

	// Tunnels are read at once, or they break after 15 s: the rest is for readers that lag a little.
	tunnelAge   = 20 * time.Second
	tunnelBytes = 64 << 20

	// tallyBytes bounds the counts of requests: about 400,000 of a key in a period.
	tallyBytes = 16 << 20

	// commandBytes bounds the commands, which carry input. A command is used for seconds
	// only.
	commandBytes = 256 << 20
	// useBytes bounds the samples of resource use: about a million samples.
	useBytes = 128 << 20
	// positionBytes bounds the positions of readers: about 100,000.
	positionBytes = 32 << 20
	// buildBytes bounds the records of builds, mostly their logs.
	buildBytes = 256 << 20
	// auditBytes bounds the audit trail: about 300,000 entries.
	auditBytes = 128 << 20
	// hookBytes bounds the attempts to deliver to webhooks: about 150,000.
	hookBytes = 64 << 20
	// frameBytes bounds the key frames of screens: about 15,000.
	frameBytes = 128 << 20
)

// noCompression disables compression by the server for every stream. nats-server 2.15.2
// compresses blocks that it still appends to. A kill leaves such a block with a compressed
// head and raw records behind it, which no server can read again. Output is compressed
// before it is stored (codec.PackBatch).
const noCompression = jetstream.NoCompression

// fileStream returns the settings that all file streams share: written once, never deleted
// from, read without consumers.
func fileStream(cfg *Config, name string) jetstream.StreamConfig {
	subject := streams.SourceOf(name)
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
		RePublish:   &jetstream.RePublish{Source: subject, Destination: streams.LivePrefix + subject},
	}
}

func outConfig(cfg *Config, shard, shards int) jetstream.StreamConfig {
	sc := fileStream(cfg, streams.Out(shard))
	sc.Subjects = []string{fmt.Sprintf("out.%02x.*.*.*", shard)}
	sc.RePublish = &jetstream.RePublish{Source: "out.>", Destination: "live.out.>"}
	sc.AllowBatchPublish = true // see combiner
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

func fixedStreams(cfg *Config) []jetstream.StreamConfig {
	sandboxes := fileStream(cfg, streams.Sandboxes) // see SweepRecords
	catalog := fileStream(cfg, streams.Catalog)
	catalog.MaxMsgsPerSubject = 1 // SweepCatalog counts old entries, then drops them
	commands := fileStream(cfg, streams.Commands)
	commands.MaxAge, commands.MaxBytes, commands.Discard = streams.CommandAge, commandBytes, jetstream.DiscardOld
	hosts := fileStream(cfg, streams.Hosts)
	hosts.MaxMsgsPerSubject = 1
	accounts := fileStream(cfg, streams.Accounts)
	secrets := fileStream(cfg, streams.Secrets)
	secrets.RePublish = nil
	snapshots := fileStream(cfg, streams.Snapshots)
	snapshots.MaxMsgsPerSubject = 1
	volumes := fileStream(cfg, streams.Volumes)
	volumes.MaxMsgsPerSubject = 1
	builds := fileStream(cfg, streams.Builds)
	builds.MaxAge, builds.MaxBytes, builds.Discard = streams.AuditAge, buildBytes, jetstream.DiscardOld
	vault := fileStream(cfg, streams.Vault)
	vault.MaxMsgsPerSubject = 1 // a new value replaces the older one
	hooks := fileStream(cfg, streams.Hooks)
	hooks.MaxMsgsPerSubject = 1
	attachments := fileStream(cfg, streams.Attachments)
	attachments.MaxMsgsPerSubject = 1
	users := fileStream(cfg, streams.Users)
	users.MaxMsgsPerSubject = 1
	conversations := fileStream(cfg, streams.Conversations)
	conversations.MaxMsgsPerSubject = 1
	workspaces := fileStream(cfg, streams.Workspaces)
	workspaces.MaxMsgsPerSubject = 1
	bundles := fileStream(cfg, streams.Bundles) // read on demand, and by no view
	bundles.MaxMsgsPerSubject, bundles.RePublish = 1, nil
	meter := fileStream(cfg, streams.Meter)
	meter.MaxMsgsPerSubject = 1
	persistence := fileStream(cfg, streams.Persistence)
	persistence.MaxMsgsPerSubject = 1
	ledger, shares := fileStream(cfg, streams.Ledger), fileStream(cfg, streams.Shares)
	ledger.MaxMsgsPerSubject, shares.MaxMsgsPerSubject = 1, 1
	frames := bounded(cfg, streams.Frames, cfg.Retention, 1, frameBytes)
	frames.AllowMsgTTL = true // each expires with its event
	fixed := []jetstream.StreamConfig{
		sandboxes, catalog, commands, hosts, accounts, secrets, snapshots, volumes, vault, builds, hooks, attachments, users, conversations, bundles, meter, ledger, workspaces, persistence, shares,
		bounded(cfg, streams.Use, cfg.Retention, streams.MaxSamples, useBytes), bounded(cfg, streams.Positions, streams.AuditAge, 1, positionBytes),
		bounded(cfg, streams.HookLog, streams.LifecycleAge, streams.MaxAttempts, hookBytes), bounded(cfg, streams.Audit, streams.DenialAge, 0, auditBytes),
		frames,
	}
	return append(fixed, inMemory(cfg)...)
}

// bounded returns a stream whose oldest messages are dropped beyond an age, a number of messages per subject
// (0: no limit) and a size. It is not republished.
func bounded(cfg *Config, name string, age time.Duration, perSubject, size int64) jetstream.StreamConfig {
	sc := fileStream(cfg, name)
	keepFor(&sc, age)
	sc.MaxBytes, sc.Discard = size, jetstream.DiscardOld
	if perSubject > 0 {
		sc.MaxMsgsPerSubject = perSubject
	}
	sc.RePublish = nil
	return sc
}

// inMemory returns the streams that are kept in memory only.
func inMemory(cfg *Config) []jetstream.StreamConfig {
	io := memoryStream(cfg, streams.IO, ioBytes, ioAge)
	tallies := memoryStream(cfg, streams.Tallies, tallyBytes, streams.TallyAge)
	tallies.MaxMsgsPerSubject = 1
	return []jetstream.StreamConfig{io, tallies, memoryStream(cfg, streams.Tunnels, tunnelBytes, tunnelAge)}
}

func memoryStream(cfg *Config, name string, size int64, age time.Duration) jetstream.StreamConfig {
	sc := fileStream(cfg, name)
	sc.Storage, sc.DenyDelete = jetstream.MemoryStorage, false
	sc.MaxBytes, sc.Discard = size, jetstream.DiscardOld
	keepFor(&sc, age)
	return sc
}
