package sandboxes

import (
	"cmp"

	"github.com/millrace/millrace/events/sandbox"
)

// recordKey is the key of the metadata that has the record policy for clients whose library has no
// field for it, such as E2B's SDKs.
const recordKey = "millrace.record"

// recordingBody is what is kept of a sandbox's processes.
type recordingBody struct {
	Record string   `json:"record"` // full, meta or none
	Redact []string `json:"redact"` // patterns of what is replaced in output and commands
}

func (b *recordingBody) parse(metadata map[string]string) (sandbox.Recording, error) {
	policy, err := sandbox.ParsePolicy(cmp.Or(b.Record, metadata[recordKey]))
	if err != nil {
		return sandbox.Recording{}, err
	}
	c := sandbox.Recording{Record: policy, Redact: b.Redact}
	return c, c.Check()
}
