package output

import (
	"testing"

	"github.com/millrace/millrace/services/hostd/internal/wire"
)

// TestDiscardedRecordFreesTheWindow: its bytes in flight become available to other records.
func TestDiscardedRecordFreesTheWindow(t *testing.T) {
	b := New(Config{})
	b.Connect(func() {})
	var records [2]*Record
	for i := range records {
		records[i] = b.NewRecord("")
		records[i].spool.push(entry{stream: 1, data: make([]byte, 1)})
	}
	b.flight = wire.WindowConn
	records[0].spool.send()
	records[0].Discard()
	if len(b.ready) != 1 || b.ready[0] != records[1] {
		t.Errorf("%d records queued", len(b.ready))
	}
}
