package admin

import (
	"context"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/cli/client"
	"github.com/millrace/millrace/internal/cli/clitest"
	"github.com/millrace/millrace/internal/cli/command"
)

const (
	copying = `{"kind":"snapshot","id":"s1","tenant":"t","state":"copying","reason":"it is being copied to the store"}`
	failed  = `{"kind":"snapshot","id":"s1","tenant":"t","state":"stays","reason":"too \u001b[31mlarge; drain again to try again"}`
	volume  = `{"kind":"volume","id":"v1","tenant":"t","state":"stays","reason":"a volume is never copied"}`
	runs    = `{"kind":"sandbox","id":"i1","tenant":"t","state":"running","reason":"it ends with its host"}`
	paused  = `{"kind":"sandbox","id":"i1","tenant":"t","state":"paused","reason":"it ends with its host"}`
)

// drain --wait prints each change once, and fails if the remaining items cannot leave.
func TestDrainWaitsUntilTheHostIsSafe(t *testing.T) {
	tests := []struct {
		name  string
		looks []string // responses; drain itself reads the first
		shown int      // outputs after the first
		want  []string // parts of the error; nil: safe
	}{
		{"safe at once", []string{""}, 0, nil},
		{"copied after a while", []string{copying, copying, copying, ""}, 1, nil},
		{"a sandbox ends, then the copy", []string{runs + "," + copying, runs + "," + copying, copying, ""}, 2, nil},
		{"a copy fails", []string{copying, copying, failed}, 1, []string{"snapshot s1 (too \ufffd[31mlarge; drain again"}},
		{"only a volume remains", []string{runs + "," + volume, volume}, 1, []string{"volume v1 (a volume is never copied)"}},
		{"a sandbox pauses", []string{runs, paused}, 1, []string{"sandbox i1 (it ends with its host)"}},
		{"all stays at once", []string{failed + "," + volume}, 0, []string{"snapshot s1", "volume v1"}},
		{"many items stay", []string{strings.Repeat(volume+",", 11) + volume}, 0, []string{"volume v1", ", and 2 more"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			g := clitest.NewGateway(t)
			g.Items = tt.looks
			c, err := client.New(g.Server.URL, "e2b_00")
			if err != nil {
				t.Fatal(err)
			}
			var out strings.Builder
			a := &app{&command.Env{Config: command.Config{Out: &out, Err: io.Discard, LookupEnv: func(string) (string, bool) { return "", false }}}}
			h, err := undrainable(t.Context(), c, "h")
			if err != nil {
				t.Fatal(err)
			}
			look := make(chan time.Time, len(tt.looks))
			for range tt.looks {
				look <- time.Time{}
			}
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			defer cancel()
			err = a.awaitSafe(ctx, c, h, look)
			if (err != nil) != (tt.want != nil) {
				t.Fatalf("error %v; want %q", err, tt.want)
			}
			for _, want := range tt.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("error %q; want %q", err, want)
				}
			}
			if n := strings.Count(out.String(), "host h "); n != tt.shown {
				t.Errorf("printed %d times, want %d:\n%s", n, tt.shown, out.String())
			}
		})
	}
}
