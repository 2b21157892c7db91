package events

import (
	"fmt"
	"strings"

	"github.com/millrace/millrace/events/internal/streams"
	"github.com/millrace/millrace/events/process"
	"github.com/millrace/millrace/events/sandbox"
)

// Ref identifies the record of a process.
type Ref struct {
	Host string // the host on which the sandbox was placed
	ID   process.ID
}

func (r Ref) subject(shards int) string {
	return fmt.Sprintf("out.%02x.%s.%s.%s", streams.ShardOf(r.Host, shards), r.Host, r.ID.Sandbox(), r.ID.Token())
}

func catalogueSubject(host string, id process.ID) string {
	return "proc." + host + "." + string(id.Sandbox()) + "." + id.Token()
}

func sandboxSubject(tenant string, id sandbox.ID) string { return "sbx." + tenant + "." + string(id) }

func hostSubject(host string) string { return "host." + host }

// tenantOf returns the second token of a subject.
func tenantOf(subject string) (string, bool) {
	parts := strings.Split(subject, ".")
	if len(parts) < 3 {
		return "", false
	}
	return parts[1], true
}
