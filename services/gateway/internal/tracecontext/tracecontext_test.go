package tracecontext_test

import (
	"net/http"
	"net/http/httptest"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/gofiber/fiber/v2"

	"github.com/millrace/millrace/events/process"
	"github.com/millrace/millrace/services/gateway/internal/tracecontext"
)

const valid = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

func TestParse(t *testing.T) {
	plain := process.Trace{
		ID:     process.TraceID{0x0a, 0xf7, 0x65, 0x19, 0x16, 0xcd, 0x43, 0xdd, 0x84, 0x48, 0xeb, 0x21, 0x1c, 0x80, 0x31, 0x9c},
		Parent: process.SpanID{0xb7, 0xad, 0x6b, 0x71, 0x69, 0x20, 0x33, 0x31}, Flags: 1,
	}
	stated, unsampled := plain, plain
	stated.State, unsampled.Flags = "rojo=00f067aa0ba902b7,congo=t61rcWkgMzE", 0
	tests := []struct {
		name, parent, state string
		want                *process.Trace
	}{
		{"sampled", valid, "", &plain},
		{"not sampled", valid[:len(valid)-1] + "0", "", &unsampled},
		{"a state", valid, "rojo=00f067aa0ba902b7,congo=t61rcWkgMzE", &stated},
		{"a state that is not valid", valid, "rojo", &plain},
		{"a later version", "01" + valid[2:], "", &plain},
		{"a later version with more", "cc" + valid[2:] + "-what-the-future-will-be-like", "", &plain},
		{"version ff", "ff" + valid[2:], "", nil},
		{"empty", "", "", nil},
		{"no id of a trace", "00-00000000000000000000000000000000-b7ad6b7169203331-01", "", nil},
		{"no id of a span", "00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01", "", nil},
		{"upper case", strings.ToUpper(valid), "", nil},
		{"too short", valid[:len(valid)-1], "", nil},
		{"more than the version has", valid + "-01", "", nil},
		{"blank before it", " " + valid, "", nil},
		{"two values", valid + "," + valid, "", nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := tracecontext.Parse(tt.parent, tt.state); !reflect.DeepEqual(got, tt.want) {
				t.Errorf("Parse(%q, %q) = %+v, want %+v", tt.parent, tt.state, got, tt.want)
			}
		})
	}
}

func TestLongStatesLoseTheirLastMembers(t *testing.T) {
	member := "a=" + strings.Repeat("x", 200)
	got := tracecontext.Parse(valid, member+","+strings.Replace(member, "a", "b", 1)+","+strings.Replace(member, "a", "c", 1))
	if want := member + "," + strings.Replace(member, "a", "b", 1); got == nil || got.State != want {
		t.Errorf("got %+v, want the state %s", got, want)
	}
}

func TestMiddleware(t *testing.T) {
	tests := []struct {
		name            string
		parents, states []string
		traced          bool
		state           string
	}{
		{"no header", nil, []string{"a=b"}, false, ""},
		{"one parent", []string{valid}, []string{"a=b"}, true, "a=b"},
		{"two headers with states", []string{valid}, []string{"a=b", "c=d"}, true, "a=b,c=d"},
		{"two parents", []string{valid, valid}, nil, false, ""},
		{"not valid", []string{"00-x"}, []string{"a=b"}, false, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var got *process.Trace
			app := fiber.New()
			app.Use(tracecontext.Middleware)
			app.Get("/", func(c *fiber.Ctx) error {
				got = tracecontext.From(c.UserContext())
				return nil
			})
			req := httptest.NewRequest(http.MethodGet, "/", http.NoBody)
			req.Header["Traceparent"], req.Header["Tracestate"] = tt.parents, tt.states
			resp, err := app.Test(req)
			if err != nil {
				t.Fatal(err)
			}
			resp.Body.Close()
			if (got != nil) != tt.traced || got != nil && got.State != tt.state {
				t.Errorf("got %+v, want traced %v, state %q", got, tt.traced, tt.state)
			}
		})
	}
}

var form = regexp.MustCompile(`^(00-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}|([1-9a-f][0-9a-f]|0[1-9a-f])-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}(-.*)?)$`)

// What is accepted has the form of the specification, is not zero, and is passed on with the same ids.
func FuzzParse(f *testing.F) {
	f.Add(valid, "a=b")
	f.Add("cc"+valid[2:]+"-x", "a=b,,c@d=e")
	f.Add("ff"+valid[2:], "a")
	f.Fuzz(func(t *testing.T, parent, state string) {
		got := tracecontext.Parse(parent, state)
		if got == nil {
			return
		}
		if !form.MatchString(strings.ReplaceAll(parent, "\n", "")) || strings.HasPrefix(parent, "ff") {
			t.Fatalf("%q is not a traceparent", parent)
		}
		checked, err := process.ParseTrace(process.AppendTrace(nil, got))
		if err != nil || !reflect.DeepEqual(checked, got) {
			t.Fatalf("%+v cannot be stored: %v", got, err)
		}
		passed := got.ParentFor("01arz3ndektsv4rrffq69g5fav-i1")
		if passed[3:52] != parent[3:52] {
			t.Fatalf("%q is passed on as %q", parent, passed)
		}
		if again := tracecontext.Parse(passed, got.State); !reflect.DeepEqual(again, got) {
			t.Fatalf("%q, %q are parsed as %+v, want %+v", passed, got.State, again, got)
		}
	})
}
