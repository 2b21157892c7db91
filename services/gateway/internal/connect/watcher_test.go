package connect

import (
	"strconv"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/millrace/millrace/events/process"
	pb "github.com/millrace/millrace/schema/filesystem"
	"github.com/millrace/millrace/services/gateway/internal/surfacetest"
)

// One fetch is also bounded in bytes, and the next one returns the rest.
func TestFetchIsBoundedInBytes(t *testing.T) {
	const frames, each = 400, 16
	name := strings.Repeat("x", 4<<10)
	bodies := make([]process.Body, 0, frames+1)
	for i := range frames {
		var data []byte
		for j := range each {
			raw, err := proto.Marshal(&pb.FilesystemEvent{Name: name + strconv.Itoa(i*each+j)})
			if err != nil {
				t.Fatal(err)
			}
			data = protowire.AppendBytes(data, raw)
		}
		bodies = append(bodies, surfacetest.Out(string(data)))
	}
	f := newFake(nil)
	f.batch = 1
	id := f.add(living, 7, recordOf(append(bodies, surfacetest.Code(0))...))
	h := New(f, nil, Config{})
	seen, after := 0, process.Seq(0)
	for fetch := 0; seen < frames*each; fetch++ {
		res, end, err := h.watches.fetch(t.Context(), &call{}, id, after, 0)
		if err != nil || end <= after {
			t.Fatalf("fetch %d: up to %d, %v", fetch, end, err)
		}
		if size := proto.Size(res); size > maxFetchedBytes+each*(5<<10) {
			t.Errorf("fetch %d returns %d bytes", fetch, size)
		}
		for _, e := range res.GetEvents() {
			if e.GetName() != name+strconv.Itoa(seen) {
				t.Fatalf("event %d is %s", seen, strings.TrimLeft(e.GetName(), "x"))
			}
			seen++
		}
		again, to, err := h.watches.fetch(t.Context(), &call{}, id, after, end)
		if err != nil || to != end || !proto.Equal(again, res) {
			t.Errorf("fetch %d, repeated: up to %d, want %d, %v", fetch, to, end, err)
		}
		after = end
	}
}
