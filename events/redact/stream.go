package redact

import "unicode/utf8"

// piece is how much input is searched at once: a search over little text uses the faster of the two
// matchers of package regexp.
const piece = MaxMatch

// Stream replaces matches in a stream of bytes. It belongs to one goroutine.
type Stream struct {
	set  *Set
	held []byte // may be the beginning of a match
}

// Stream returns a new stream.
func (s *Set) Stream() *Stream { return &Stream{set: s} }

// Append adds input and appends the output that is certain to dst.
func (s *Stream) Append(dst, input []byte) []byte {
	for len(input) > 0 {
		n := min(piece, len(input))
		s.held = append(s.held, input[:n]...)
		input = input[n:]
		var used int
		dst, used = s.search(dst, s.held[:complete(s.held)], true)
		s.held = s.held[:copy(s.held, s.held[used:])]
	}
	return dst
}

// AppendRest appends the output of what is held back if the input ends here. It does not change
// the stream.
func (s *Stream) AppendRest(dst []byte) []byte {
	dst, _ = s.search(dst, s.held, false)
	return dst
}

// search appends the output of text to dst, up to a match that may continue behind the text. It
// returns how much of the text is done.
func (s *Stream) search(dst, text []byte, more bool) (out []byte, used int) {
	for used < len(text) {
		rest := text[used:]
		hold := len(rest)
		if more {
			hold = s.set.beginsAt(rest)
		}
		start := hold
		if m := s.set.match.FindIndex(rest); m != nil && (m[0] < hold || !more) {
			start = m[0]
		}
		dst = append(dst, rest[:start]...)
		used += start
		if rest = rest[start:]; len(rest) == 0 || more && start == hold && len(rest) < MaxMatch {
			break
		}
		n := s.set.matchHere(rest[:min(len(rest), MaxMatch)])
		if n > 0 {
			dst = append(dst, Replacement...)
		} else {
			_, n = utf8.DecodeRune(rest)
			dst = append(dst, rest[:n]...)
		}
		used += n
	}
	return dst, used
}

// beginsAt returns where the first match begins that may continue behind text; len(text): there is
// none.
func (s *Set) beginsAt(text []byte) int {
	from := max(0, len(text)-s.longest)
	for back := 1; from > 0 && back < utf8.UTFMax && !utf8.RuneStart(text[from]); back++ {
		from-- // the search must not begin within a character
	}
	return from + s.begin.FindIndex(text[from:])[0] // the empty text at the end always matches
}

// matchHere returns the length of the match at the beginning of text; 0: there is none.
func (s *Set) matchHere(text []byte) int {
	if m := s.match.FindIndex(text); m != nil && m[0] == 0 {
		return m[1]
	}
	return 0
}

// complete returns the length of b without an incomplete UTF-8 character at its end.
func complete(b []byte) int {
	for i := len(b) - 1; i >= 0 && i >= len(b)-utf8.UTFMax+1; i-- {
		if utf8.RuneStart(b[i]) {
			if !utf8.FullRune(b[i:]) {
				return i
			}
			break
		}
	}
	return len(b)
}
