package ndjson

import (
	"encoding/hex"
	"encoding/json"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/events/process"
	"github.com/millrace/millrace/services/gateway/internal/stream"
	"github.com/millrace/millrace/services/gateway/internal/surfacetest"
	"github.com/millrace/millrace/services/gateway/internal/textenc"
)

// A position is "skip N" lines of the stream, or "after N" events once the gateway
// ended it.
func TestSurface(t *testing.T) {
	surfacetest.Run(t, surfacetest.Surface{
		Text: true, Exits: true, MaxLine: MaxLine, Decode: decode,
		Encoder: func(t *testing.T, r *surfacetest.Record, position string) (stream.Encoder, process.Seq) {
			if after, ok := strings.CutPrefix(position, "after "); ok {
				return newRest(t, after)
			}
			skip, err := strconv.Atoi(strings.TrimPrefix(position, "skip "))
			if err != nil && position != "" {
				t.Fatal(err)
			}
			return newEncoder(surfacetest.ID, 50*time.Second, skip), 0
		},
	})
}

// rest encodes the stream of events to which a reconnect line refers, as the text that the
// suite expects.
type rest struct {
	dec [process.PTY + 1]textenc.Decoder
}

// newRest parses "N stdout=c3...": the position, and the beginnings of runes that the client
// received as bytes.
func newRest(t *testing.T, position string) (stream.Encoder, process.Seq) {
	t.Helper()
	words := strings.Fields(position)
	seq, err := strconv.ParseUint(words[0], 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	r := &rest{}
	for _, w := range words[1:] {
		name, torn, _ := strings.Cut(w, "=")
		b, err := hex.DecodeString(torn)
		if err != nil {
			t.Fatal(err)
		}
		r.dec[streamOf(name)].Feed(b)
	}
	return r, seq
}

func streamOf(name string) process.Stream {
	return map[string]process.Stream{"stdout": process.Stdout, "stderr": process.Stderr, "pty": process.PTY}[name]
}

func (r *rest) AppendEvent(dst []byte, e process.Event) ([]byte, error) {
	switch b := e.Body.(type) {
	case process.Wrote:
		head, body := r.dec[b.Stream].Feed(b.Data)
		return appendLine(appendLine(dst, b.Stream, head), b.Stream, body), nil
	case process.Finished:
		for s := range r.dec {
			dst = appendLine(dst, process.Stream(s), r.dec[s].Flush())
		}
	}
	return append(textenc.AppendEvent(dst, &e), '\n'), nil
}

func (r *rest) AppendIdle(dst []byte, _ time.Duration) ([]byte, time.Duration) { return dst, 0 }

func (r *rest) AppendEnd(dst []byte, _ error) []byte { return dst }

// decode decodes lines; the end of the body is the end of the stream unless a line reports more.
func decode(t *testing.T, raw []byte) []surfacetest.Unit {
	t.Helper()
	var units []surfacetest.Unit
	last, n, torn := surfacetest.Unit{What: surfacetest.Last}, 0, ""
	for line := range strings.Lines(string(raw)) {
		var l struct {
			Type, Data, Cause string
			DataB64           []byte `json:"data_b64"`
			ExitCode          *int   `json:"exit_code"`
			After             uint64
		}
		if err := json.Unmarshal([]byte(line), &l); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		n++
		u := surfacetest.Unit{Position: "skip " + strconv.Itoa(n)}
		switch l.Type {
		case "start":
			u.What = surfacetest.Start
		case "stdout", "stderr", "pty":
			if len(l.DataB64) > 0 {
				torn += " " + l.Type + "=" + hex.EncodeToString(l.DataB64)
				continue
			}
			u.What, u.Data, u.Stream = surfacetest.Data, []byte(l.Data), streamOf(l.Type)
		case "end":
			if l.ExitCode == nil {
				last.Err = l.Cause
				continue
			}
			u.What, u.Code = surfacetest.End, *l.ExitCode
		case "keepalive":
			n--
			u = surfacetest.Unit{What: surfacetest.Keepalive}
		case "gap":
			u.What = surfacetest.Gap
		case "reconnect":
			last.Err, last.Position = l.Type, "after "+strconv.FormatUint(l.After, 10)+torn
			continue
		}
		units = append(units, u)
	}
	return append(units, last)
}
