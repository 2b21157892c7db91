package mounts

import (
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/events/workspace"
)

func at(size int64, second int64) *state { return &state{size, time.Unix(second, 0)} }

func TestPlan(t *testing.T) {
	const name = workspace.Path("dir/f")
	tests := []struct {
		name          string
		base          *version
		local, stored *state
		links         map[string]bool
		want          string
	}{
		{"new outside", nil, nil, at(1, 1), nil, "pull"},
		{"new in the sandbox", nil, at(1, 1), nil, nil, "push"},
		{"unchanged", &version{*at(1, 5), *at(1, 9)}, at(1, 5), at(1, 9), nil, ""},
		{"changed in the sandbox", &version{*at(1, 5), *at(1, 9)}, at(1, 6), at(1, 9), nil, "push"},
		{"changed outside", &version{*at(1, 5), *at(1, 9)}, at(1, 5), at(1, 10), nil, "pull"},
		{"changed on both sides, later in the sandbox", &version{*at(1, 5), *at(1, 9)}, at(2, 20), at(3, 10), nil, "push"},
		{"changed on both sides, later outside", &version{*at(1, 5), *at(1, 9)}, at(2, 10), at(3, 20), nil, "pull"},
		{"removed in the sandbox", &version{*at(1, 5), *at(1, 9)}, nil, at(1, 9), nil, "unstore"},
		{"removed in the sandbox, changed outside", &version{*at(1, 5), *at(1, 9)}, nil, at(1, 10), nil, "pull"},
		{"removed outside", &version{*at(1, 5), *at(1, 9)}, at(1, 5), nil, nil, "remove"},
		{"removed outside, changed in the sandbox", &version{*at(1, 5), *at(1, 9)}, at(1, 6), nil, nil, "push"},
		{"removed on both sides", &version{*at(1, 5), *at(1, 9)}, nil, nil, nil, ""},
		{"copied by another gateway", nil, at(1, 5), at(1, 9), nil, "compare"},
		{"changed since another gateway copied it", nil, at(1, 10), at(1, 9), nil, "push"},
		{"its directory became a link", &version{*at(1, 5), *at(1, 9)}, nil, at(1, 10), map[string]bool{"dir": true}, ""},
		{"became a link", nil, nil, at(1, 10), map[string]bool{"dir/f": true}, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			m := &mount{base: make(map[workspace.Path]version)}
			local, stored := make(map[workspace.Path]state), make(map[workspace.Path]state)
			if tt.base != nil {
				m.base[name] = *tt.base
			}
			if tt.local != nil {
				local[name] = *tt.local
			}
			if tt.stored != nil {
				stored[name] = *tt.stored
			}
			p := m.plan(stored, local, tt.links)
			var got []string
			for what, names := range map[string][]workspace.Path{"push": p.push, "pull": p.pull, "unstore": p.unstore, "remove": p.remove, "compare": p.compare} {
				if slices.Equal(names, []workspace.Path{name}) {
					got = append(got, what)
				}
			}
			if strings.Join(got, " ") != tt.want {
				t.Errorf("%v, want %q", got, tt.want)
			}
		})
	}
}

// A file that changed while it was read fails at its end, so that no mixture is stored.
func TestFileThatChangesIsNotStored(t *testing.T) {
	for _, want := range []error{nil, errChanging} {
		got, err := io.ReadAll(&unchanged{r: strings.NewReader("bytes"), same: func() error { return want }})
		if !errors.Is(err, want) || string(got) != "bytes" {
			t.Errorf("%q, %v", got, err)
		}
	}
}

func TestSame(t *testing.T) {
	long := strings.Repeat("x", 100_000)
	for _, tt := range []struct {
		a, b string
		want error
	}{{"", "", nil}, {"1", "1", nil}, {"1", "2", errDiffers}, {long, long, nil}, {long, long + "x", errDiffers}, {long + "x", long + "y", errDiffers}, {"", "x", errDiffers}} {
		if err := same(strings.NewReader(tt.a), strings.NewReader(tt.b)); !errors.Is(err, tt.want) {
			t.Errorf("%d and %d bytes: %v, want %v", len(tt.a), len(tt.b), err, tt.want)
		}
	}
	if err := same(io.MultiReader(strings.NewReader("x"), &unchanged{r: strings.NewReader(""), same: func() error { return errChanging }}), strings.NewReader("x")); !errors.Is(err, errChanging) {
		t.Errorf("a reader that fails: %v", err)
	}
}
