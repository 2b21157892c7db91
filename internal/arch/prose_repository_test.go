package arch

import (
	"path"
	"strings"
	"testing"
)

// exceptions are texts that have a habit for a reason: the path of the file, and a part
// of the sentence. Ten lines at most.
var exceptions = [][2]string{}

// TestPlainEnglish searches all comments, strings and Markdown of the repository for
// the habits of prose_test.go.
func TestPlainEnglish(t *testing.T) {
	if len(exceptions) > 10 {
		t.Errorf("%d exceptions, the most is 10", len(exceptions))
	}
	used := make(map[[2]string]bool)
	excused := func(rel, excerpt string) bool {
		for _, e := range exceptions {
			if e[0] == rel && strings.Contains(excerpt, e[1]) {
				used[e] = true
				return true
			}
		}
		return false
	}
	prose(t, func(rel string, text []byte) {
		var texts []paragraph
		if path.Ext(rel) == ".md" {
			texts = ofMarkdown(string(text))
		} else {
			s := parse(t, rel, text)
			if s.generated() {
				return
			}
			texts = ofGo(s.ast, s.pos)
			for _, at := range badHelp(s.ast, s.pos) {
				t.Error(at)
			}
			if !s.test {
				for _, at := range badDocs(s.ast, s.pos) {
					t.Error(at)
				}
			}
		}
		for _, p := range texts {
			for _, f := range inProse(p.text) {
				if !excused(rel, f.excerpt) {
					t.Errorf("%s:%d: %s: %q: %s", rel, p.line+f.line, f.habit, f.excerpt, f.advice)
				}
			}
		}
	})
	for _, e := range exceptions {
		if !used[e] {
			t.Errorf("the exception %q of %s is not needed any more", e[1], e[0])
		}
	}
}
