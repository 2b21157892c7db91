package events

import (
	"fmt"
	"hash/fnv"
	"strings"

	"github.com/millrace/millrace/events/process"
	"github.com/millrace/millrace/events/sandbox"
)

// The streams. Each stored message (with replicas: once a quorum has stored it) is
// republished under its subject with the prefix "live.".
const (
	streamCommands  = "CMD"
	streamSandboxes = "SBX"
	streamCatalogue = "PROC"
	streamHosts     = "HOSTS"
	streamAccounts  = "ACCOUNT"
	streamIO        = "IO"
	streamTunnels   = "TUNNEL"
	streamSecrets   = "SECRET"
	streamSnapshots = "SNAP"
	streamUse       = "USE"
	streamVolumes   = "VOLUME"
	streamPositions = "PLACE"
	streamBuilds    = "BUILD"
	streamVault     = "VAULT"
	streamHooks     = "HOOK"
	streamHookLog   = "HOOKLOG"

	replyPrefix  = "io.reply."
	tunnelPrefix = "tunnel."

	livePrefix = "live."
	outPrefix  = "OUT_"
)

// Ref identifies the record of a process.
type Ref struct {
	Host string // the host on which the sandbox was placed
	ID   process.ID
}

// outStream returns the name of the output stream of a shard.
func outStream(shard int) string { return fmt.Sprintf(outPrefix+"%02x", shard) }

// shardOf distributes hosts over the shards of the output. It must never change.
func shardOf(host string, shards int) int {
	h := fnv.New32a()
	h.Write([]byte(host)) //nolint:errcheck // a hash never fails
	return int(h.Sum32() % uint32(shards))
}

func (r Ref) subject(shards int) string {
	return fmt.Sprintf("out.%02x.%s.%s.%s", shardOf(r.Host, shards), r.Host, r.ID.Sandbox(), r.ID.Token())
}

func catalogueSubject(host string, id process.ID) string {
	return "proc." + host + "." + string(id.Sandbox()) + "." + id.Token()
}

func sandboxSubject(tenant string, id sandbox.ID) string { return "sbx." + tenant + "." + string(id) }
func commandSubject(host string) string                  { return "cmd." + host }

// tunnelSubject returns the subject that announces new tunnels to a host. Messages through a
// tunnel have its id and ".up" (to the host) or ".down" appended.
func tunnelSubject(host string) string { return tunnelPrefix + host }

func hostSubject(host string) string { return "host." + host }

// sourceOf returns the subject under which all messages of a stream are stored and
// republished.
func sourceOf(stream string) string {
	switch stream {
	case streamSandboxes:
		return "sbx.>"
	case streamCatalogue:
		return "proc.>"
	case streamHosts:
		return "host.>"
	case streamAccounts:
		return "acct.>"
	case streamSnapshots:
		return "snap.>"
	case streamBuilds:
		return "build.>"
	case streamVolumes:
		return "vol.>"
	case streamVault:
		return "vault.>"
	case streamHooks:
		return "hook.>"
	}
	return "out." + strings.TrimPrefix(stream, outPrefix) + ".>"
}

// streamOf returns the stream that stores messages of a subject; "" if the log has none.
func streamOf(subject string) string {
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

// tenantOf returns the second token of a subject.
func tenantOf(subject string) (string, bool) {
	parts := strings.Split(subject, ".")
	if len(parts) < 3 {
		return "", false
	}
	return parts[1], true
}
