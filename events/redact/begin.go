package redact

import (
	"errors"
	"regexp"
	"regexp/syntax"
	"slices"
	"unicode/utf8"
)

// parse parses a pattern, without its captures.
func parse(pattern string) (*syntax.Regexp, error) {
	if pattern == "" || len(pattern) > MaxPattern {
		return nil, errors.New("it must have 1 to 256 bytes")
	}
	tree, err := syntax.Parse(pattern, syntax.Perl)
	if err != nil {
		return nil, err
	}
	if hasAssertion(tree) {
		return nil, errors.New("assertions such as ^, $ and \\b are not supported")
	}
	re, err := regexp.Compile(tree.String())
	if err != nil {
		return nil, err
	}
	if re.MatchString("") {
		return nil, errors.New("it matches the empty text")
	}
	return withoutCaptures(tree), nil
}

func hasAssertion(re *syntax.Regexp) bool {
	switch re.Op {
	case syntax.OpBeginLine, syntax.OpEndLine, syntax.OpBeginText, syntax.OpEndText, syntax.OpWordBoundary, syntax.OpNoWordBoundary:
		return true
	default:
		return slices.ContainsFunc(re.Sub, hasAssertion)
	}
}

func withoutCaptures(re *syntax.Regexp) *syntax.Regexp {
	for re.Op == syntax.OpCapture {
		re = re.Sub[0]
	}
	for i, sub := range re.Sub {
		re.Sub[i] = withoutCaptures(sub)
	}
	return re
}

// begin returns an expression for the texts that can be continued, by at least one character, to
// a match of re.
func begin(re *syntax.Regexp) *syntax.Regexp {
	switch re.Op {
	case syntax.OpLiteral:
		var parts []*syntax.Regexp
		for _, r := range re.Rune {
			parts = append(parts, &syntax.Regexp{Op: syntax.OpLiteral, Rune: []rune{r}, Flags: re.Flags})
		}
		if len(parts) == 1 {
			return empty()
		}
		return beginConcat(parts)
	case syntax.OpCharClass, syntax.OpAnyChar, syntax.OpAnyCharNotNL:
		return empty()
	case syntax.OpConcat:
		return beginConcat(re.Sub)
	case syntax.OpAlternate:
		out := &syntax.Regexp{Op: syntax.OpAlternate}
		for _, sub := range re.Sub {
			out.Sub = append(out.Sub, begin(sub))
		}
		return out
	case syntax.OpStar, syntax.OpPlus:
		star := &syntax.Regexp{Op: syntax.OpStar, Sub: re.Sub}
		return concat(star, begin(re.Sub[0]))
	case syntax.OpQuest:
		return begin(re.Sub[0])
	case syntax.OpRepeat:
		if re.Max == 0 {
			return &syntax.Regexp{Op: syntax.OpNoMatch}
		}
		most := max(re.Max, 0) - 1 // -1: unlimited
		if most == 0 {
			return begin(re.Sub[0])
		}
		return concat(&syntax.Regexp{Op: syntax.OpRepeat, Max: most, Sub: re.Sub}, begin(re.Sub[0]))
	default: // nothing continues an empty match, or no match
		return &syntax.Regexp{Op: syntax.OpNoMatch}
	}
}

// beginConcat returns the beginnings of parts one after the other: those of the first, or all of the
// first and the beginnings of the others.
func beginConcat(parts []*syntax.Regexp) *syntax.Regexp {
	out := begin(parts[len(parts)-1])
	for _, p := range slices.Backward(parts[:len(parts)-1]) {
		out = &syntax.Regexp{Op: syntax.OpAlternate, Sub: []*syntax.Regexp{begin(p), concat(p, out)}}
	}
	return out
}

func concat(re ...*syntax.Regexp) *syntax.Regexp {
	return &syntax.Regexp{Op: syntax.OpConcat, Sub: re}
}

func empty() *syntax.Regexp { return &syntax.Regexp{Op: syntax.OpEmptyMatch} }

// longest returns an upper bound of the bytes of a match of re; at most MaxMatch.
func longest(re *syntax.Regexp) int {
	n := 0
	switch re.Op {
	case syntax.OpLiteral:
		n = len(re.Rune) * utf8.UTFMax
	case syntax.OpCharClass, syntax.OpAnyChar, syntax.OpAnyCharNotNL:
		n = utf8.UTFMax
	case syntax.OpStar, syntax.OpPlus:
		n = MaxMatch
	case syntax.OpRepeat:
		if n = MaxMatch; re.Max >= 0 {
			n = re.Max * longest(re.Sub[0])
		}
	case syntax.OpAlternate:
		for _, sub := range re.Sub {
			n = max(n, longest(sub))
		}
	default:
		for _, sub := range re.Sub {
			n += longest(sub)
		}
	}
	return min(n, MaxMatch)
}
