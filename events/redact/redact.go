package redact

import (
	"regexp"
	"regexp/syntax"
	"strings"

	"github.com/millrace/millrace/events/kind"
)

// Limits of a [Set].
const (
	MaxPatterns = 32      // in a set
	MaxPattern  = 256     // bytes of a pattern
	MaxMatch    = 4 << 10 // bytes of a match, and of what a stream holds back
	maxProgram  = 16 << 10
)

// Replacement is what replaces a match.
const Replacement = "[redacted]"

// Set is a compiled set of patterns. It is safe for concurrent use.
type Set struct {
	match   *regexp.Regexp
	begin   *regexp.Regexp // the end of a text that may be the beginning of a match
	longest int            // upper bound of the bytes of a match
}

// Compile returns the set of the given patterns; nil for none. Its errors have kind.Invalid.
func Compile(patterns []string) (*Set, error) {
	if len(patterns) == 0 {
		return nil, nil
	}
	if len(patterns) > MaxPatterns {
		return nil, invalid("%d patterns, the maximum is %d", len(patterns), MaxPatterns)
	}
	s := &Set{}
	var matches, begins []string
	for i, p := range patterns {
		tree, err := parse(p)
		if err != nil {
			return nil, invalid("pattern %d: %s", i+1, err)
		}
		matches = append(matches, tree.String())
		begins = append(begins, begin(tree).String())
		s.longest = max(s.longest, longest(tree))
	}
	var err error
	if s.match, err = compile("(?:" + strings.Join(matches, ")|(?:") + ")"); err != nil {
		return nil, err
	}
	if s.begin, err = compile("(?:(?:" + strings.Join(begins, ")|(?:") + `))\z`); err != nil {
		return nil, err
	}
	return s, nil
}

func compile(expr string) (*regexp.Regexp, error) {
	tree, err := syntax.Parse(expr, syntax.Perl)
	if err != nil {
		return nil, invalid("the patterns are too complex: %s", err)
	}
	prog, err := syntax.Compile(tree.Simplify())
	if err != nil || len(prog.Inst) > maxProgram {
		return nil, invalid("the patterns are too complex")
	}
	re, err := regexp.Compile(expr)
	if err != nil {
		return nil, invalid("the patterns are too complex: %s", err)
	}
	re.Longest()
	return re, nil
}

func invalid(format string, args ...any) error {
	return kind.Newf(kind.Invalid, "redact", "", "redaction: "+format, args...)
}

// Text returns s with each match replaced. A nil set returns s.
func (s *Set) Text(text string) string {
	if s == nil || !s.match.MatchString(text) {
		return text
	}
	st := s.Stream()
	return string(st.AppendRest(st.Append(nil, []byte(text))))
}

// Texts returns the texts with each match replaced.
func (s *Set) Texts(texts []string) []string {
	if s == nil || len(texts) == 0 {
		return texts
	}
	out := make([]string, len(texts))
	for i, t := range texts {
		out[i] = s.Text(t)
	}
	return out
}
