package body

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/millrace/millrace/events/kind"
)

func TestParse(t *testing.T) {
	for raw, want := range map[string]string{
		`{"email":"a"}`:                     "a",
		`{"x":[{"email":"b"}],"email":"a"}`: "a",
		"{\n\"email\" : \"\\u0061\" }":      "a",
		`{"EMAIL":"a"}`:                     "",
		`{"email":null}`:                    "",
		`{}`:                                "",
	} {
		var got string
		if err := Parse([]byte(raw), Field{Name: "email", Into: &got}); err != nil || got != want {
			t.Errorf("%s: %q, %v; want %q", raw, got, err, want)
		}
	}
	for _, raw := range []string{
		"", "null", "7", `"x"`, "[]", "{", `{"email"}`, `{"email":"a"`, `{"email":"a"}}`, `{} {}`, `{"email":"a"} x`, "\xef\xbb\xbf{}",
		`{"email":"a","email":"a"}`, `{"email":7}`, `{"email":["a"]}`, `{"email":{"a":1}}`, `{"email":1e999}`, `{"email":NaN}`, `{'email':'a'}`, `{"email":"a",}`,
		"{\"email\":\"\xff\"}", `{"x":` + strings.Repeat("[", 100_000), `{"x":` + strings.Repeat("[", 20_000) + strings.Repeat("]", 20_000) + "}",
	} {
		var got string
		if err := Parse([]byte(raw), Field{Name: "email", Into: &got}); !kind.Is(err, kind.Invalid) {
			t.Errorf("%.40q: %q, %v", raw, got, err)
		}
	}
}

// A value with a repeated name is rejected at any depth, unless its member is unknown.
func TestParseRejectsRepeatedNames(t *testing.T) {
	for value, ok := range map[string]bool{
		`{"a":1,"b":{"a":2},"c":[{"a":3},{"a":4}]}`: true, `{"a":"a","b":"a"}`: true, `[{"a":{}},[],{"a":[]}]`: true, `{}`: true,
		`{"a":1,"a":1}`: false, `{"a":1,"\u0061":2}`: false, `{"x":{"a":1,"b":[],"a":2}}`: false, `[1,[{"a":{},"a":[]}]]`: false,
	} {
		var got json.RawMessage
		if err := Parse([]byte(`{"v":`+value+`}`), Field{Name: "v", Into: &got}); (err == nil) != ok {
			t.Errorf("%s: %v, want ok %v", value, err, ok)
		}
		if err := Parse([]byte(`{"unknown":` + value + `}`)); err != nil {
			t.Errorf("%s, unknown: %v", value, err)
		}
	}
}

// No body makes the parser fail in another way than Invalid.
func FuzzParse(f *testing.F) {
	for _, raw := range []string{`{"email":"a","code":"1"}`, `{"email":"\ud800"}`, `{"a":{"b":[1,2]}}`, "[", "{}{}"} {
		f.Add([]byte(raw))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		var email, code string
		if err := Parse(raw, Field{Name: "email", Into: &email}, Field{Name: "code", Into: &code}); err != nil && !kind.Is(err, kind.Invalid) {
			t.Errorf("%q: %v", raw, err)
		}
	})
}
