package secrets

import (
	"bytes"
	"encoding/json"
	"errors"

	"github.com/millrace/millrace/services/gateway/internal/e2a/body"
)

// values are the values of a bundle, by key. Unlike encoding/json's maps they reject a repeated
// key, and any value other than a string.
type values map[string]string

// errValues has no detail, because that could be a value.
var errValues = errors.New("not an object of strings")

// field returns the member of a body that has the values.
func (v *values) field() body.Field {
	return body.Field{Name: "values", Into: v, Want: "an object of strings without repeated names"}
}

// UnmarshalJSON implements json.Unmarshaler.
func (v *values) UnmarshalJSON(raw []byte) error {
	d := json.NewDecoder(bytes.NewReader(raw))
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return errValues
	}
	out := make(values)
	for d.More() {
		key, ok := text(d)
		if _, repeated := out[key]; !ok || repeated {
			return errValues
		}
		if out[key], ok = text(d); !ok {
			return errValues
		}
	}
	if t, err := d.Token(); err != nil || t != json.Delim('}') {
		return errValues
	}
	*v = out
	return nil
}

func text(d *json.Decoder) (string, bool) {
	t, err := d.Token()
	s, ok := t.(string)
	return s, err == nil && ok
}
