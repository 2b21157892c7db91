package store

import (
	"encoding/json"
	"testing"
)

func TestStoredAt(t *testing.T) {
	tests := []struct {
		name, ack string
		seq       uint64
	}{
		{"stored", `{"stream":"OUT_00","seq":123}`, 123},
		{"stored before", `{"stream":"OUT_00","seq":7,"duplicate":true}`, 7},
		{"in a domain", `{"stream":"OUT_00","domain":"d","seq":9}`, 9},
		{"largest number", `{"stream":"OUT_00","seq":9999999999999999999}`, 9999999999999999999},
		{"rejected", `{"error":{"code":400,"err_code":10071},"stream":"OUT_00","seq":0}`, 0},
		{"rejected, in another order", `{"stream":"OUT_00","seq":0,"error":{"code":400}}`, 0},
		{"too many digits", `{"stream":"OUT_00","seq":12345678901234567890}`, 0},
		{"cut", `{"stream":"OUT_00","seq":12`, 0},
		{"no number", `{"stream":"OUT_00","seq":}`, 0},
		{"space", `{"stream": "OUT_00", "seq": 5}`, 0},
		{"empty", ``, 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, ok := storedAt([]byte(tt.ack))
			if ok != (tt.seq > 0) || ok && got != tt.seq {
				t.Errorf("storedAt(%s) = %d, %v; want %d", tt.ack, got, ok, tt.seq)
			}
			var ack pubAck
			if err := json.Unmarshal([]byte(tt.ack), &ack); ok && (err != nil || ack.Seq != got) {
				t.Errorf("encoding/json: %d, %v", ack.Seq, err)
			}
		})
	}
}
