package client

import (
	"encoding/json"
	"strings"
	"testing"
)

// The hand-written decoder agrees with encoding/json or returns false.
func FuzzFast(f *testing.F) {
	for _, s := range []string{
		`{"seq":1,"time":"2026-01-02T03:04:05.000006Z","type":"stdout","offset":0,"data":"a\n\t\"\\é"}`,
		`{"seq":18446744073709551616,"time":"x","type":"pty","offset":0,"data":"\u0000"}`,
		`{"seq":2,"time":"2026-01-02T03:04:05Z","type":"stderr","offset":7,"data":"x","data":"y"}`,
		`{"type":"keepalive"}`,
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if strings.Contains(s, "\n") {
			return
		}
		var got, want Event
		if !decodeOutput([]byte(s+"\n"), &got) {
			return
		}
		if err := json.Unmarshal([]byte(s), &want); err != nil {
			// JSON forbids raw control characters; no gateway sends them.
			if !strings.ContainsFunc(s, func(r rune) bool { return r < ' ' }) {
				t.Fatalf("fast accepted %q, which is not JSON: %v", s, err)
			}
			return
		}
		if got.Seq != want.Seq || got.Type != want.Type || got.Offset != want.Offset || !got.Time.Equal(want.Time) || string(got.Bytes()) != string(want.Bytes()) {
			t.Errorf("fast(%q) = %+v %q; want %+v %q", s, got, got.Bytes(), want, want.Bytes())
		}
	})
}
