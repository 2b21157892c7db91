package jsonrpc_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/millrace/millrace/services/gateway/internal/codex/jsonrpc"
)

//
func TestParse(t *testing.T) {
	long := `"` + strings.Repeat("i", 8<<10) + `"`
	tests := []struct {
		name, raw  string
		kind       jsonrpc.Kind // 0: an error
		id, method string
		params     string
	}{
		{"a request", `{"id":1,"method":"m","params":{"a":[1,{"b":"}"}]}}`, jsonrpc.Request, "1", "m", `{"a":[1,{"b":"}"}]}`},
		{"a request with jsonrpc", `{"jsonrpc":"2.0","id":1,"method":"m"}`, jsonrpc.Request, "1", "m", ""},
		{"a notification", `{"method":"initialized","params":{}}`, jsonrpc.Notification, "", "initialized", "{}"},
		{"a response", `{"id":3,"result":{}}`, jsonrpc.Response, "3", "", ""},
		{"an error response", `{"id":3,"error":{"code":1,"message":"x"}}`, jsonrpc.Response, "3", "", ""},
		{"a string id", `{"id":"a\u0041\n","method":"m"}`, jsonrpc.Request, `"a\u0041\n"`, "m", ""},
		{"an empty string id", `{"id":"","method":"m"}`, jsonrpc.Request, `""`, "m", ""},
		{"a negative id", `{"id":-9223372036854775808,"method":"m"}`, jsonrpc.Request, "-9223372036854775808", "m", ""},
		{"an id of 8 KiB", `{"id":` + long + `,"method":"m"}`, jsonrpc.Request, long, "m", ""},
		{"space everywhere", " {\n\t\"id\" : 1 ,\r\"method\" : \"m\" , \"params\" : null } ", jsonrpc.Request, "1", "m", "null"},
		{"members of any order", `{"params":[1],"method":"m","trace":{"id":9},"id":1}`, jsonrpc.Request, "1", "m", "[1]"},
		{"an escaped method", `{"id":1,"method":"\u006d"}`, jsonrpc.Request, "1", "m", ""},
		{"another case of a member", `{"ID":1,"Method":"x","method":"m"}`, jsonrpc.Notification, "", "m", ""},

		{"a null id", `{"id":null,"method":"m"}`, 0, "", "", ""},
		{"a fractional id", `{"id":1.0,"method":"m"}`, 0, "", "", ""},
		{"an exponent in the id", `{"id":1e3,"method":"m"}`, 0, "", "", ""},
		{"an id beyond 64 bits", `{"id":9223372036854775808,"method":"m"}`, 0, "", "", ""},
		{"an object as id", `{"id":{},"method":"m"}`, 0, "", "", ""},
		{"an id of 1 MiB", `{"id":"` + strings.Repeat("i", 1<<20) + `","method":"m"}`, 0, "", "", ""},
		{"two ids", `{"id":1,"id":2,"method":"m"}`, 0, "", "", ""},
		{"two methods", `{"id":1,"method":"a","method":"b"}`, 0, "", "", ""},
		{"a number as method", `{"id":1,"method":7}`, 0, "", "", ""},
		{"a long method", `{"id":1,"method":"` + strings.Repeat("m", 300) + `"}`, 0, "", "", ""},
		{"no method", `{"id":1}`, 0, "", "", ""},
		{"nothing", `{}`, 0, "", "", ""},
		{"a batch", `[{"id":1,"method":"m"}]`, 0, "", "", ""},
		{"an empty batch", `[]`, 0, "", "", ""},
		{"a string", `"m"`, 0, "", "", ""},
		{"null", `null`, 0, "", "", ""},
		{"empty", ``, 0, "", "", ""},
		{"half a message", `{"id":1,"method":"m"`, 0, "", "", ""},
		{"trailing data", `{"id":1,"method":"m"}{}`, 0, "", "", ""},
		{"a byte order mark", "\ufeff" + `{"id":1,"method":"m"}`, 0, "", "", ""},
		{"depth 10^5", strings.Repeat("[", 1e5) + strings.Repeat("]", 1e5), 0, "", "", ""},
		{"depth 10^5 in params", `{"id":1,"method":"m","params":` + strings.Repeat(`{"a":`, 1e5) + "1" + strings.Repeat("}", 1e5) + "}", 0, "", "", ""},
		{"beyond the limit of size", `{"id":1,"method":"m","params":"` + strings.Repeat("x", jsonrpc.MaxMessage) + `"}`, 0, "", "", ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			m, err := jsonrpc.Parse([]byte(tt.raw))
			if tt.kind == 0 {
				var e *jsonrpc.Error
				if !errors.As(err, &e) || e.Code != jsonrpc.CodeInvalidRequest || e.Message == "" {
					t.Errorf("got %+v, %v", m, err)
				}
				return
			}
			if err != nil || m.Kind != tt.kind || string(m.ID) != tt.id || m.Method != tt.method || string(m.Params) != tt.params {
				t.Errorf("got %+v, %v", m, err)
			}
		})
	}
}

func TestBracketsInStringsAreNotDepth(t *testing.T) {
	raw := `{"id":1,"method":"m","params":"` + strings.Repeat(`[{\"\\`, 1000) + `"}`
	if _, err := jsonrpc.Parse([]byte(raw)); err != nil {
		t.Error(err)
	}
}

// An id is echoed as it was sent.
func TestAnswers(t *testing.T) {
	tests := []struct{ got, want string }{
		{string(jsonrpc.AppendResult(nil, []byte(`"\u0041"`), []byte(`{}`))), `{"id":"\u0041","result":{}}`},
		{string(jsonrpc.AppendError(nil, []byte("7"), &jsonrpc.Error{Code: -32602, Message: `no "x"`})), `{"error":{"code":-32602,"message":"no \"x\""},"id":7}`},
		{string(jsonrpc.AppendError(nil, nil, &jsonrpc.Error{Code: -32600, Message: "bad"})), `{"error":{"code":-32600,"message":"bad"},"id":-1}`},
		{string(jsonrpc.AppendNotification(nil, "a/b", []byte(`{"x":1}`))), `{"method":"a/b","params":{"x":1}}`},
	}
	for _, tt := range tests {
		if tt.got != tt.want {
			t.Errorf("got %s, want %s", tt.got, tt.want)
		}
	}
}

func FuzzParse(f *testing.F) {
	for _, s := range []string{
		`{"id":1,"method":"m","params":{"a":[1,{"b":"}"}]}}`, `{"method":"initialized"}`, `{"id":"\u0041","result":{}}`, `[]`,
		`{"id":null}`, ` {"id" : 1 , "method":"\\\"" } `, `{"a":-1e5,"b":true,"id":0,"method":"m"}`, `{"id":1,"id":1}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		m, err := jsonrpc.Parse(raw)
		if err != nil {
			var e *jsonrpc.Error
			if !errors.As(err, &e) || e.Code != jsonrpc.CodeInvalidRequest {
				t.Fatalf("error %v", err)
			}
			return
		}
		// The standard library is the oracle; it matches names in any case, so a map it is.
		var want map[string]json.RawMessage
		if err := json.Unmarshal(raw, &want); err != nil {
			t.Fatalf("accepted %q: %v", raw, err)
		}
		for name, got := range map[string][]byte{"id": m.ID, "params": m.Params} {
			if m.Kind == jsonrpc.Response && name == "params" {
				continue
			}
			if w := want[name]; !bytes.Equal(w, got) && !escaped(raw) {
				t.Fatalf("%s of %q: got %q, want %q", name, raw, got, w)
			}
		}
		answer := jsonrpc.AppendResult(nil, append([]byte{}, m.ID...), []byte("{}"))
		if m.ID != nil && !json.Valid(answer) {
			t.Fatalf("answer %q is not JSON", answer)
		}
	})
}

// escaped reports whether a name may be written with an escape, which Parse does not know as
// one of its members.
func escaped(raw []byte) bool { return bytes.ContainsRune(raw, '\\') }

func FuzzAppendString(f *testing.F) {
	for _, s := range []string{"", "plain", `"`, "\x00", "\u2028", "\xff", "<é>"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		want, err := json.Marshal(s)
		if got := jsonrpc.AppendString(nil, s); err != nil || !bytes.Equal(got, want) && string(got) != `"`+s+`"` {
			t.Errorf("got %s, want %s", got, want)
		}
		var back string
		if err := json.Unmarshal(jsonrpc.AppendString(nil, s), &back); err != nil || back != strings.ToValidUTF8(s, "\ufffd") && back == "" {
			t.Errorf("%q became %q, %v", s, back, err)
		}
	})
}

func BenchmarkParse(b *testing.B) {
	raw := []byte(`{"id":12,"method":"process/write","params":{"processId":"1-abc","chunk":"` + strings.Repeat("QUJD", 1024) + `","writeId":"3"}}`)
	b.SetBytes(int64(len(raw)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := jsonrpc.Parse(raw); err != nil {
			b.Fatal(err)
		}
	}
}
