package secrets

import (
	"encoding/json"
	"maps"
	"strings"
	"testing"

	"github.com/millrace/millrace/services/gateway/internal/e2a/body"
)

func parse(raw string) (values, error) {
	var v values
	err := body.Parse([]byte(raw), v.field())
	return v, err
}

func TestValues(t *testing.T) {
	for raw, want := range map[string]values{
		`{"values":{"A":"b"}}`:              {"A": "b"},
		`{"values":{"A":"b","B":""}}`:       {"A": "b", "B": ""},
		`{"values":{"\u0041":"\"\\\n"}}`:    {"A": "\"\\\n"},
		`{"values":{}}`:                     {},
		`{"values":null}`:                   nil,
		`{}`:                                nil,
		`{"values": { "A" : "b" } , "x":1}`: {"A": "b"},
	} {
		if got, err := parse(raw); err != nil || !maps.Equal(got, want) || (got == nil) != (want == nil) {
			t.Errorf("%s: %v, %v; want %v", raw, got, err, want)
		}
	}
	const secret = "hunter2"
	for _, raw := range []string{
		`{"values":"hunter2"}`, `{"values":["hunter2"]}`, `{"values":7}`, `{"values":true}`, `{"values":{"A":7}}`, `{"values":{"A":null}}`, `{"values":{"A":{"B":"hunter2"}}}`,
		`{"values":{"A":["hunter2"]}}`, `{"values":{"A":"hunter2","A":"x"}}`, `{"values":{"A":"x","\u0041":"hunter2"}}`, `{"values":{"A":"hunter2"},"values":{"A":"b"}}`,
		`{"values":{"A":"hunter2"`, `{"values":{"A":"hunter2",}}`, `{"values":{A:"hunter2"}}`, `{"values":{"A" "hunter2"}}`, `{"values":{"A":"hunter2"}}}`, `{"values":{"A":hunter2}}`, `{"values":{"A":"hunter2\x"}}`,
	} {
		if got, err := parse(raw); err == nil || strings.Contains(err.Error(), secret) {
			t.Errorf("%s: %v, %v", raw, got, err)
		}
	}
}

// Values that are decoded are those of encoding/json, and no error shows a part of the body.
func FuzzValues(f *testing.F) {
	for _, raw := range []string{`{"A":"b"}`, `{"A":"b","A":"c"}`, `{"A":1}`, `{"\ud800":"\udfff"}`, `[]`, `{"A":{}}`, `{"":""}`} {
		f.Add(raw)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		got, err := parse(`{"values":` + raw + `}`)
		if err != nil {
			if len(raw) > 40 && strings.Contains(err.Error(), raw) {
				t.Errorf("the error shows the body: %v", err)
			}
			return
		}
		want := struct{ Values map[string]string }{}
		if err := json.Unmarshal([]byte(`{"values":`+raw+`}`), &want); err == nil && got != nil && !maps.Equal(map[string]string(got), want.Values) {
			t.Errorf("%q: %q, want %q", raw, got, want.Values)
		}
	})
}
