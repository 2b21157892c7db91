package template

import (
	"bytes"
	"reflect"
	"strings"
	"testing"

	"github.com/millrace/millrace/events/kind"
)

func TestParseService(t *testing.T) {
	for text, want := range map[string]Service{
		"jupyter:http:8081":                   {"jupyter", "http", 8081, ""},
		"sshd:tcp:2200":                       {"sshd", "tcp", 2200, ""},
		"web:http:8000=serve --a=b:c 65535":   {"web", "http", 8000, "serve --a=b:c 65535"},
		"a:tcp:65536":                         {},
		"a:tcp:1023":                          {},
		"a:tcp:x":                             {},
		"a:udp:2000":                          {},
		"a b:tcp:2000":                        {},
		":tcp:2000":                           {},
		"a:tcp":                               {},
		"":                                    {},
		strings.Repeat("a", 65) + ":tcp:2000": {},
		"a:tcp:2000=x\x00":                    {},
	} {
		got, err := ParseService(text)
		if want == (Service{}) {
			if !kind.Is(err, kind.Invalid) {
				t.Errorf("%q: %+v, %v; want an error", text, got, err)
			}
		} else if got != want || err != nil {
			t.Errorf("%q: %+v, %v; want %+v", text, got, err, want)
		}
	}
}

func TestParseServicePorts(t *testing.T) {
	got, err := ParseServicePorts("ipython:pty:3000, jupyter:http:8081,x:tcp:2022")
	want := []Service{{"jupyter", "http", 8081, ""}, {"x", "tcp", 2022, ""}}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, %v; want %+v", got, err, want)
	}
	if _, err := ParseServicePorts("jupyter:http"); !kind.Is(err, kind.Invalid) {
		t.Errorf("malformed: %v", err)
	}
}

func TestServicesOfAManifest(t *testing.T) {
	m := Manifest{Arch: "amd64", Tar: 1, Parts: []Sum{SumOf(nil)}, Services: []Service{{"a", "tcp", 2000, "run"}, {"b", "http", 2000, ""}}}
	raw, _, err := m.Encode()
	if err != nil || !bytes.Contains(raw, []byte(`"services":[{"name":"a","protocol":"tcp","port":2000,"start":"run"},{`)) {
		t.Errorf("%s, %v", raw, err)
	}
	if got, _, err := Decode(raw); err != nil || !reflect.DeepEqual(got.Services, m.Services) {
		t.Errorf("%+v, %v", got, err)
	}
	m.Services[1].Name = "a"
	if _, _, err := m.Encode(); !kind.Is(err, kind.Invalid) {
		t.Errorf("two services with one name: %v", err)
	}
}
