package codexclient

import "testing"

// Output is counted as its bytes, however its base64 is padded; an answer may have many chunks.
func TestChunkBytes(t *testing.T) {
	for _, tt := range []struct {
		raw  string
		want int
	}{
		{`{"method":"process/output","params":{"processId":"p","seq":1,"stream":"stdout","chunk":"YQ=="}}`, 1},
		{`{"method":"process/output","params":{"processId":"p","seq":1,"stream":"stdout","chunk":"YWI="}}`, 2},
		{`{"id":1,"result":{"chunks":[{"seq":1,"chunk":"YWJj"},{"seq":2,"chunk":"YWJjZA=="}],"nextSeq":3}}`, 7},
		{`{"method":"process/output","params":{"processId":"p","seq":1,"stream":"stdout","chunk":""}}`, 0},
		{`{"id":1,"result":{}}`, 0},
	} {
		if got := chunkBytes([]byte(tt.raw)); got != tt.want {
			t.Errorf("%s: %d bytes, want %d", tt.raw, got, tt.want)
		}
	}
}
