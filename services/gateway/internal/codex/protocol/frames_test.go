package protocol_test

import (
	"encoding/json"
	"reflect"
	"testing"

	"github.com/millrace/millrace/services/gateway/internal/codex/jsonrpc"
	"github.com/millrace/millrace/services/gateway/internal/codex/protocol"
)

//
func TestFrames(t *testing.T) {
	id := jsonrpc.AppendString(nil, "a\"b")
	tests := []struct{ got, want string }{
		{string(protocol.AppendOutput(nil, id, 7, "pty", []byte("hi\xff"))), `{"method":"process/output","params":{"processId":"a\"b","seq":7,"stream":"pty","chunk":"aGn/"}}`},
		{string(protocol.AppendOutput(nil, id, 7, "stdout", nil)), `{"method":"process/output","params":{"processId":"a\"b","seq":7,"stream":"stdout","chunk":""}}`},
		{string(protocol.AppendExited(nil, id, 8, -1)), `{"method":"process/exited","params":{"processId":"a\"b","seq":8,"exitCode":-1,"sandboxDenied":false}}`},
		{string(protocol.AppendClosed(nil, id, 9)), `{"method":"process/closed","params":{"processId":"a\"b","seq":9}}`},
	}
	for _, tt := range tests {
		if tt.got != tt.want {
			t.Errorf("got %s, want %s", tt.got, tt.want)
		}
	}
}

//
func TestReadAnswer(t *testing.T) {
	a := protocol.NewReadAnswer(nil, []byte("1"))
	if got := string(a.Close(protocol.ReadState{NextSeq: 1})); got != `{"id":1,"result":{"chunks":[],"nextSeq":1,"exited":false,"exitCode":null,"closed":false,"failure":null,"sandboxDenied":false}}` {
		t.Errorf("empty: %s", got)
	}
	a = protocol.NewReadAnswer(nil, []byte(`"x"`))
	a.Chunk(1, "stdout", []byte("a"))
	a.Chunk(2, "stderr", []byte("b"))
	want := `{"id":"x","result":{"chunks":[{"seq":1,"stream":"stdout","chunk":"YQ=="},{"seq":2,"stream":"stderr","chunk":"Yg=="}],"nextSeq":5,"exited":true,"exitCode":0,"closed":true,"failure":"host \"h\" lost","sandboxDenied":false}}`
	if got := string(a.Close(protocol.ReadState{NextSeq: 5, Exited: true, Closed: true, Failure: `host "h" lost`})); got != want {
		t.Errorf("got %s", got)
	}
}

// The standard library is the oracle of the frames that are appended by hand.
func FuzzOutput(f *testing.F) {
	f.Add("p", uint64(1), []byte("x"))
	f.Add("\x00<\u2028", uint64(1<<63), []byte{})
	f.Fuzz(func(t *testing.T, id string, seq uint64, chunk []byte) {
		type params struct {
			ProcessID string `json:"processId"`
			Seq       uint64 `json:"seq"`
			Stream    string `json:"stream"`
			Chunk     []byte `json:"chunk"`
		}
		var got struct {
			Method string `json:"method"`
			Params params `json:"params"`
		}
		raw := protocol.AppendOutput(nil, jsonrpc.AppendString(nil, id), seq, "stdout", chunk)
		if err := json.Unmarshal(raw, &got); err != nil {
			t.Fatalf("%s: %v", raw, err)
		}
		var sameID string
		quoted, _ := json.Marshal(id)
		json.Unmarshal(quoted, &sameID)
		want := params{sameID, seq, "stdout", append([]byte{}, chunk...)}
		if got.Method != "process/output" || !reflect.DeepEqual(got.Params, want) {
			t.Errorf("got %+v, want %+v", got.Params, want)
		}
		if len(raw) > protocol.ChunkSize(len(chunk))+6*len(id)+2 {
			t.Errorf("%d bytes, more than ChunkSize", len(raw))
		}
	})
}

func BenchmarkAppendOutput(b *testing.B) {
	chunk, id := make([]byte, 64<<10), []byte(`"1-abc"`)
	buf := make([]byte, 0, 128<<10)
	b.SetBytes(int64(len(chunk)))
	b.ReportAllocs()
	for b.Loop() {
		buf = protocol.AppendOutput(buf[:0], id, 7, "stdout", chunk)
	}
}
