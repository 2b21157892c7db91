package processes

import (
	"encoding/json"
	"strconv"
	"strings"
	"testing"

	"github.com/millrace/millrace/events/process"
	"github.com/millrace/millrace/services/gateway/internal/stream"
	"github.com/millrace/millrace/services/gateway/internal/surfacetest"
	"github.com/millrace/millrace/services/gateway/internal/textenc"
)

func TestSurface(t *testing.T) {
	after := func(t *testing.T, position string) process.Seq {
		t.Helper()
		if position == "" {
			return 0
		}
		seq, err := strconv.ParseUint(position, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		return seq
	}
	t.Run("NDJSON", func(t *testing.T) {
		surfacetest.Run(t, surfacetest.Surface{
			Exits: true, Decode: func(t *testing.T, raw []byte) []surfacetest.Unit { return decode(t, string(raw)) },
			Encoder: func(t *testing.T, _ *surfacetest.Record, position string) (stream.Encoder, process.Seq) {
				seq := after(t, position)
				return &lines{id: surfacetest.ID, after: seq, pulse: textenc.NewKeepaliveTimer(DefaultKeepalive)}, seq
			},
		})
	})
	t.Run("SSE", func(t *testing.T) {
		surfacetest.Run(t, surfacetest.Surface{
			Exits: true, Decode: func(t *testing.T, raw []byte) []surfacetest.Unit { return decode(t, unwrap(t, string(raw))) },
			Encoder: func(t *testing.T, _ *surfacetest.Record, position string) (stream.Encoder, process.Seq) {
				seq := after(t, position)
				return &browser{id: surfacetest.ID, after: seq, pulse: textenc.NewKeepaliveTimer(DefaultKeepalive)}, seq
			},
		})
	})
}

// unwrap parses Server-Sent Events as a browser does, and returns their data as lines. A
// comment becomes a keepalive.
func unwrap(t *testing.T, raw string) string {
	t.Helper()
	if raw != "" && !strings.HasSuffix(raw, "\n\n") {
		t.Fatalf("%q ends within an event", raw)
	}
	var out strings.Builder
	for event := range strings.SplitSeq(raw, "\n\n") {
		var id, name, data string
		for line := range strings.SplitSeq(event, "\n") {
			field, value, _ := strings.Cut(line, ": ")
			switch field {
			case "":
				if value != "" {
					out.WriteString(`{"type":"keepalive"}` + "\n")
				}
			case "id":
				id = value
			case "event":
				name = value
			case "data":
				data += value
			case "retry":
			default:
				t.Fatalf("field %q", line)
			}
		}
		if data == "" {
			continue
		}
		var l struct {
			Seq  json.Number
			Type string
		}
		if err := json.Unmarshal([]byte(data), &l); err != nil || l.Type != name || string(l.Seq) != id {
			t.Fatalf("id %q, event %q, data %s: %v", id, name, data, err)
		}
		out.WriteString(data + "\n")
	}
	return out.String()
}

// decode parses lines; without a line that ends the stream, the end of the body does.
func decode(t *testing.T, raw string) []surfacetest.Unit {
	t.Helper()
	var units []surfacetest.Unit
	last := surfacetest.Unit{What: surfacetest.Last}
	for line := range strings.Lines(raw) {
		var l struct {
			Seq, After        uint64
			Type, Data, Cause string
			DataB64           []byte `json:"data_b64"`
			ExitCode          *int   `json:"exit_code"`
		}
		if err := json.Unmarshal([]byte(line), &l); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		u := surfacetest.Unit{Position: strconv.FormatUint(l.Seq, 10)}
		switch l.Type {
		case "start":
			u.What = surfacetest.Start
		case "stdout", "stderr", "pty":
			u.What, u.Data = surfacetest.Data, append([]byte(l.Data), l.DataB64...)
			u.Stream = map[string]process.Stream{"stdout": process.Stdout, "stderr": process.Stderr, "pty": process.PTY}[l.Type]
		case "end":
			if l.ExitCode == nil {
				last.Err = l.Cause
				continue
			}
			u.What, u.Code = surfacetest.End, *l.ExitCode
		case "gap":
			u.What = surfacetest.Gap
		case "keepalive":
			u = surfacetest.Unit{What: surfacetest.Keepalive}
		case "reconnect":
			last.Err, last.Position = l.Type, strconv.FormatUint(l.After, 10)
			continue
		}
		units = append(units, u)
	}
	return append(units, last)
}
