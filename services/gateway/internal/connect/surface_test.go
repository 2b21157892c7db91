package connect

import (
	"testing"
	"time"

	"github.com/millrace/millrace/events/process"
	"github.com/millrace/millrace/services/gateway/internal/stream"
	"github.com/millrace/millrace/services/gateway/internal/surfacetest"
)

func budget() *stream.Budget { return stream.New(stream.Config{}).Budget("") }

// opened returns an encoder as start or connect make it.
func opened(t *testing.T, r *surfacetest.Record, at string, w wire, never bool) (*encoder, process.Seq) {
	t.Helper()
	want, err := parseReplayFrom(at)
	if err != nil {
		t.Fatalf("the surface returned a position that it does not accept: %v", err)
	}
	e := &encoder{
		id: surfacetest.ID, wire: w, neverFlush: never, keepalive: 50 * time.Second, budget: budget(),
		byLine: !r.Spec.Stdin && r.Spec.PTY == nil,
	}
	if at != "" {
		e.open(surfacetest.PID, &want)
	}
	return e, want.seq
}

func TestSurface(t *testing.T) {
	for _, tt := range []struct {
		name  string
		wire  wire
		never bool
		line  int
	}{
		{"JSON", wire{}, false, 0},
		{"JSON with whole lines only", wire{}, true, maxPartialNever},
		{"JSON with gzip", wire{gzip: true}, false, 0},
		{"protobuf", wire{binary: true}, false, 0},
		{"protobuf with whole lines only", wire{binary: true}, true, maxPartialNever},
	} {
		t.Run(tt.name, func(t *testing.T) {
			surfacetest.Run(t, surfacetest.Surface{
				Exits:   true,
				MaxLine: tt.line,
				Decode:  decoder(tt.wire.binary),
				Encoder: func(t *testing.T, r *surfacetest.Record, at string) (stream.Encoder, process.Seq) {
					return opened(t, r, at, tt.wire, tt.never)
				},
			})
		})
	}
}
