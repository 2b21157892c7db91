package record

import (
	"fmt"

	"github.com/millrace/millrace/events/internal/streams"
	"github.com/millrace/millrace/events/process"
)

// Ref identifies the record of a process.
type Ref struct {
	Host string // the host on which the sandbox was placed
	ID   process.ID
}

func (r Ref) subject(shards int) string {
	return fmt.Sprintf("out.%02x.%s.%s.%s", streams.ShardOf(r.Host, shards), r.Host, r.ID.Sandbox(), r.ID.Token())
}
