package process_test

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/process"
	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/events/seal/sealtest"
)

func TestPoliciesHaveOneNameEach(t *testing.T) {
	for _, p := range []sandbox.Policy{sandbox.RecordFull, sandbox.RecordMeta, sandbox.RecordNone} {
		if got, err := sandbox.ParsePolicy(p.String()); got != p || err != nil {
			t.Errorf("%v: %v, %v", p, got, err)
		}
	}
	if _, err := sandbox.ParsePolicy("all"); !kind.Is(err, kind.Invalid) {
		t.Errorf("an unknown policy: %v", err)
	}
	if p := max(sandbox.RecordMeta, sandbox.RecordNone); p != sandbox.RecordNone {
		t.Errorf("the stricter one of meta and none is %v", p)
	}
}

// secretSpec has a secret in each part that a client chooses.
func secretSpec(record sandbox.Policy, patterns ...string) process.Spec {
	text := "x hunter2 y"
	return process.Spec{
		Cmd: text, Args: []string{"a", text}, Env: map[string]string{"A": text}, Cwd: text, User: text, Arg0: &text,
		PTY: &process.Size{Cols: 80, Rows: 24}, Stdin: true, Record: record, Redact: patterns,
	}
}

// What is sealed for a command is all that the host needs, and what can be read without the key has no
// secret.
func TestACommandShowsOnlyWhatMayBeKept(t *testing.T) {
	ring := sealtest.Ring(t)
	id := process.NewID("i1")
	for _, tt := range []struct {
		name string
		spec process.Spec
		cmd  string
	}{
		{"none", secretSpec(sandbox.RecordNone), ""},
		{"none with patterns", secretSpec(sandbox.RecordNone, "hunter[0-9]"), ""},
		{"patterns", secretSpec(sandbox.RecordFull, "hunter[0-9]"), "x [redacted] y"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			sealed, err := tt.spec.Seal(ring, "t", id)
			if err != nil {
				t.Fatal(err)
			}
			open, err := sealed.Open(ring, "t", id)
			if got := process.AppendSpec(nil, &open); err != nil || !bytes.Equal(got, process.AppendSpec(nil, &tt.spec)) {
				t.Errorf("opened %+v, %v", open, err)
			}
			if sealed.Cmd != tt.cmd || sealed.PTY == nil || !sealed.Stdin || sealed.Record != tt.spec.Record {
				t.Errorf("shows %+v", sealed)
			}
			sealed.Hidden = ""
			if b := string(process.AppendSpec(nil, &sealed)); strings.Contains(b, "hunter") {
				t.Errorf("shows the secret: %q", b)
			}
		})
	}
	open := secretSpec(sandbox.RecordMeta)
	sealed, err := open.Seal(ring, "t", id)
	if err != nil || sealed.Hidden != "" || sealed.Cmd != open.Cmd || !slices.Equal(sealed.Args, open.Args) {
		t.Errorf("a command without secrets: %+v, %v", sealed, err)
	}
}
