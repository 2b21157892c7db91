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
	Catalogue = "PROC"
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

// SourceOf returns the subject under which all messages of a stream are stored and
// republished.
func SourceOf(stream string) string {
	switch stream {
	case Sandboxes:
		return "sbx.>"
	case Catalogue:
		return "proc.>"
	case Hosts:
		return "host.>"
	case Accounts:
		return "acct.>"
	case Snapshots:
		return "snap.>"
	case Builds:
		return "build.>"
	case Volumes:
		return "vol.>"
	case Vault:
		return "vault.>"
	case Hooks:
		return "hook.>"
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
	for _, sc := range fixedStreams(Config{}) {
		if sc.Subjects[0] == first+".>" {
			return sc.Name
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
	for _, sc := range fixedStreams(Config{}) {
		all = append(all, sc.Name)
	}
	slices.Sort(all)
	return all
}
