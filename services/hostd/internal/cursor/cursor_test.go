package cursor

import "testing"

// The cursor never passes a command that is not done, in whatever order commands end.
func TestCursor(t *testing.T) {
	c := New(10)
	steps := []struct {
		name     string
		do       func()
		position uint64
	}{
		{"nothing yet", func() {}, 10},
		{"one begun", func() { c.Begin(12) }, 11},
		{"two more", func() { c.Begin(13); c.Begin(20) }, 11},
		{"a later one ends first", func() { c.End(13) }, 11},
		{"then the first", func() { c.End(12) }, 19},
		{"the first again", func() { c.End(12) }, 19},
		{"the last", func() { c.End(20) }, 20},
	}
	for _, s := range steps {
		s.do()
		if got := c.Position(); got != s.position {
			t.Errorf("%s: at %d, want %d", s.name, got, s.position)
		}
	}
}
