package workspace

import (
	"strings"
	"testing"

	"github.com/millrace/millrace/events/kind"
)

func TestPaths(t *testing.T) {
	for _, s := range []string{"a", "a/b.txt", ".hidden", "a..b", "...", "ü/日本", "a b", "%2e%2e", "*", ">", strings.Repeat("a", 255)} {
		if p, err := ParsePath(s); err != nil || string(p) != s {
			t.Errorf("%q: %v", s, err)
		}
	}
	for _, s := range []string{
		"", "/", "/a", "a/", "a//b", ".", "..", "../a", "a/..", "a/../b", "a/./b", "a\x00b", "a\nb", "a\x7fb", "a\\b", `..\a`, "a\xff",
		strings.Repeat("a", 256), strings.Repeat("a/", 600),
	} {
		if _, err := ParsePath(s); !kind.Is(err, kind.Invalid) {
			t.Errorf("%q: %v", s, err)
		}
	}
}

func TestScopes(t *testing.T) {
	for _, s := range []string{"a", "my-app", "A.b_c", "_", strings.Repeat("a", 128)} {
		if _, err := ParseScope("t", s, s); err != nil {
			t.Errorf("%q: %v", s, err)
		}
	}
	for _, s := range []string{"", ".", "..", ".a", "a/b", "a b", "*", ">", "ü", "a\x00", strings.Repeat("a", 129)} {
		for _, ids := range [][2]string{{s, "a"}, {"a", s}} {
			if _, err := ParseScope("t", ids[0], ids[1]); !kind.Is(err, kind.Invalid) {
				t.Errorf("%q: %v", ids, err)
			}
		}
	}
}

// Workspaces with similar names and paths have different subjects, which contain none of them.
func TestSubjects(t *testing.T) {
	seen := make(map[string]bool)
	for _, s := range []Scope{{"t", "a", "b.c"}, {"t", "a.b", "c"}, {"t", "ab", "c"}, {"u", "a", "b.c"}} {
		for _, p := range []Path{"x", "x/y", "x.y", "*", ">"} {
			e := entry{scope: s, file: File{Path: p}}
			subject := e.subject()
			if seen[subject] || strings.Count(subject, ".") != 3 || strings.ContainsAny(subject, "*>/") {
				t.Errorf("%v %s: %s", s, p, subject)
			}
			seen[subject] = true
		}
	}
}
