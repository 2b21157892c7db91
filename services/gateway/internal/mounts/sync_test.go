package mounts

import (
	"errors"
	"io"
	"log/slog"
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

// A file that changed while it was read fails before its last bytes, so that no mixture is stored: also if it has
// grown or shrunk, and if the store reads no further than the size.
func TestFileThatChangesIsNotStored(t *testing.T) {
	for _, tt := range []struct {
		has     string
		changed error
		want    error
	}{{"bytes", nil, nil}, {"bytes", errChanging, errChanging}, {"bytes and more", errChanging, errChanging}, {"byte", nil, errChanging}, {"", nil, errChanging}} {
		u := &unchanged{r: strings.NewReader(tt.has), left: 5, same: func() error { return tt.changed }}
		if _, err := io.CopyN(io.Discard, u, 5); !errors.Is(err, tt.want) {
			t.Errorf("%q: %v, want %v", tt.has, err, tt.want)
		}
	}
	if _, err := io.ReadAll(&unchanged{r: strings.NewReader("bytes and more"), left: 5, same: func() error { return nil }}); !errors.Is(err, errChanging) {
		t.Errorf("a file that has grown: %v", err)
	}
	empty := &unchanged{r: strings.NewReader("x"), same: func() error { return nil }}
	if _, err := io.ReadAll(empty); !errors.Is(err, errChanging) {
		t.Errorf("a file that was empty: %v", err)
	}
}

// A file that grows while it is stored is no failure: the next synchronization stores it.
func TestFileThatGrowsIsStoredLater(t *testing.T) {
	h, s := &host{modified: time.Unix(20, 0), more: "!"}, &files{content: "early", modified: time.Unix(10, 0)}
	ms := New(Config{Store: s, Files: h, Gateways: cluster{}, Slog: slog.New(slog.DiscardHandler)})
	m := newMount(ms)
	if err := ms.sync(t.Context(), m, true); err != nil || s.content != "early" || m.unstored().Count != 1 {
		t.Errorf("%v, stored %q, %+v", err, s.content, m.unstored())
	}
	h.more = ""
	if err := ms.sync(t.Context(), m, true); err != nil || s.content != "later" || m.unstored().Count != 0 {
		t.Errorf("%v, stored %q, %+v", err, s.content, m.unstored())
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
