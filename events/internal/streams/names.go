package streams

import (
	"fmt"
	"hash/fnv"
	"slices"
	"strings"
)

// Names of streams. Each stored message (with replicas: once a quorum has stored it) is
// republished under its subject with the prefix "live.".
const (
	Commands  = "CMD"
	Sandboxes = "SBX"
	Catalog   = "PROC"
	Hosts     = "HOSTS"
	Accounts  = "ACCOUNT"
	IO        = "IO"
	Tunnels   = "TUNNEL"
	Secrets   = "SECRET"
	Snapshots = "SNAP"
	Use       = "USE"
	Volumes   = "VOLUME"
	Positions = "PLACE"
	Builds    = "BUILD"
	Vault     = "VAULT"
	Hooks     = "HOOK"
	HookLog   = "HOOKLOG"
	Tallies   = "TALLY"
	Frames    = "FRAME"

	Attachments = "ATTACH"
	Users       = "USER"
	Audit       = "AUDIT"
	Bundles     = "BUNDLE"
	Meter       = "METER"

	Conversations = "CONV"
	Workspaces    = "WORK"
	Persistence   = "PERSIST"
	Ledger        = "LEDGER"
	Shares        = "SHARE"

	// CatalogTotals is the subject of the catalog that has no entry of a process.
	CatalogTotals = "proc.totals"

	ReplyPrefix  = "io.reply."
	TunnelPrefix = "tunnel."

	LivePrefix = "live."
	outPrefix  = "OUT_"
)

// Out returns the name of the output stream of a shard.
func Out(shard int) string { return fmt.Sprintf(outPrefix+"%02x", shard) }

// ShardOf distributes hosts over the shards of the output. It must never change.
func ShardOf(host string, shards int) int {
	h := fnv.New32a()
	h.Write([]byte(host))
	return int(h.Sum32() % uint32(shards))
}

// source is a stream and the subject of its messages.
type source struct{ stream, subject string }

// sources are all streams but those of the output.
var sources = []source{
	{Sandboxes, "sbx.>"},
	{Catalog, "proc.>"},
	{Commands, "cmd.>"},
	{Hosts, "host.>"},
	{Accounts, "acct.>"},
	{Secrets, "secret.>"},
	{Snapshots, "snap.>"},
	{Volumes, "vol.>"},
	{Vault, "vault.>"},
	{Builds, "build.>"},
	{Hooks, "hook.>"},
	{Use, "use.>"},
	{Positions, "place.>"},
	{HookLog, "hooklog.>"},
	{Frames, "frame.>"},
	{Attachments, "attach.>"},
	{Users, "user.>"},
	{Audit, "audit.>"},
	{Meter, "meter.>"},
	{Conversations, "conv.>"},
	{Bundles, "bundle.>"},
	{Workspaces, "work.>"},
	{Persistence, "persist.>"},
	{Ledger, "ledger.>"},
	{Shares, "share.>"},
	{IO, "io.>"},
	{Tallies, "tally.>"},
	{Tunnels, TunnelPrefix + ">"},
}

// SourceOf returns the subject under which all messages of a stream are stored and
// republished.
func SourceOf(stream string) string {
	for _, s := range sources {
		if s.stream == stream {
			return s.subject
		}
	}
	return "out." + strings.TrimPrefix(stream, outPrefix) + ".>"
}

// Of returns the stream that stores messages of a subject; "" if the log has none.
func Of(subject string) string {
	first, rest, _ := strings.Cut(subject, ".")
	if first == "out" {
		shard, _, _ := strings.Cut(rest, ".")
		return outPrefix + shard
	}
	for _, s := range sources {
		if s.subject == first+".>" {
			return s.stream
		}
	}
	return ""
}

// Names returns the names of all streams of the log.
func Names(shards int) []string {
	var all []string
	for i := range shards {
		all = append(all, Out(i))
	}
	for _, s := range sources {
		all = append(all, s.stream)
	}
	slices.Sort(all)
	return all
}
