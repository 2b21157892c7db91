package durable

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/millrace/millrace/events/process"
	"github.com/millrace/millrace/services/gateway/internal/stream"
	"github.com/millrace/millrace/services/gateway/internal/surfacetest"
	"github.com/millrace/millrace/services/gateway/internal/textenc"
)

func TestSurface(t *testing.T) {
	surfacetest.Run(t, surfacetest.Surface{
		Exits: true, MaxLine: maxData, Decode: decode,
		Encoder: func(t *testing.T, r *surfacetest.Record, position string) (stream.Encoder, process.Seq) {
			p, err := parseOffset(position)
			if err != nil {
				t.Fatal(err)
			}
			tip := r.Events[len(r.Events)-1].Seq
			return &encoder{after: p.After, tip: tip, cursor: "1", keepalive: textenc.NewKeepaliveTimer(keepalive)}, p.After
		},
	})
}

type message struct {
	Seq               uint64
	Type, Data, Cause string
	DataB64           []byte `json:"data_b64"`
	ExitCode          *int   `json:"exit_code"`
}

type control struct {
	StreamNextOffset, StreamCursor string
	UpToDate, StreamClosed         bool
}

// decode decodes an SSE body as the protocol's clients do. A body without streamClosed
// broke off: the client continues from the last offset.
func decode(t *testing.T, raw []byte) []surfacetest.Unit {
	t.Helper()
	var units []surfacetest.Unit
	last := surfacetest.Unit{What: surfacetest.Last, Err: "cut"}
	if s := string(raw); s != "" && !strings.HasSuffix(s, "\n\n") {
		t.Fatalf("%q ends within an event", raw)
	}
	unseen := ""
	for event := range strings.SplitSeq(string(raw), "\n\n") {
		name, data := parse(t, event)
		switch name {
		case "comment":
			units = append(units, surfacetest.Unit{What: surfacetest.Keepalive})
		case "data":
			var ms []message
			if err := json.Unmarshal([]byte(data), &ms); err != nil {
				t.Fatalf("%q: %v", data, err)
			}
			for _, m := range ms {
				u := unit(&m)
				if m.Type == "end" && m.ExitCode == nil {
					unseen = m.Cause
					continue
				}
				units = append(units, u)
			}
		case "control":
			var c control
			if err := json.Unmarshal([]byte(data), &c); err != nil || c.StreamNextOffset == "" || (c.StreamCursor == "") != c.StreamClosed {
				t.Fatalf("%q: %v", data, err)
			}
			if last.Position = c.StreamNextOffset; c.StreamClosed {
				last.Err = unseen
			}
		}
	}
	return append(units, last)
}

// unit returns a unit with its own position, which a client can derive from the seq of the
// message.
func unit(m *message) surfacetest.Unit {
	u := surfacetest.Unit{Position: offset(m.Seq)}
	switch m.Type {
	case "start":
		u.What = surfacetest.Start
	case "stdout", "stderr", "pty":
		u.What, u.Data = surfacetest.Data, append([]byte(m.Data), m.DataB64...)
		u.Stream = map[string]process.Stream{"stdout": process.Stdout, "stderr": process.Stderr, "pty": process.PTY}[m.Type]
	case "end":
		if u.What = surfacetest.End; m.ExitCode != nil {
			u.Code = *m.ExitCode
		}
	case "gap":
		u.What = surfacetest.Gap
	}
	return u
}

func parse(t *testing.T, event string) (name, data string) {
	t.Helper()
	for line := range strings.SplitSeq(event, "\n") {
		field, value, _ := strings.Cut(line, ": ")
		switch {
		case strings.HasPrefix(line, ": "):
			name = "comment"
		case field == "event":
			name = value
		case field == "data":
			data += value + "\n"
		case line != "":
			t.Fatalf("line %q", line)
		}
	}
	return name, data
}
