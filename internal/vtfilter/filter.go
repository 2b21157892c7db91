package vtfilter

import "unicode/utf8"

// Filter filters one stream of terminal output. The zero value is ready for use.
// A Filter must not be used concurrently.
type Filter struct {
	state   state
	pending []byte // the unfinished sequence or rune
	long    bool   // the sequence exceeds maxSequence and is removed
}

type state uint8

const (
	ground  state = iota // text
	char                 // in a rune of several bytes
	escape               // after ESC and intermediates
	control              // after ESC [
	text                 // in a string: OSC, DCS, SOS, PM, APC or a title of screen(1)
	textEsc              // in a string, after ESC
)

// maxSequence is the maximum length in bytes of a sequence that can pass.
const maxSequence = 4 << 10

const (
	enq = 0x05
	bel = 0x07
	can = 0x18
	sub = 0x1a
	esc = 0x1b
	del = 0x7f
)

const replacement = "\uFFFD"

// Replay appends the safe part of p, the next bytes of history.
func (f *Filter) Replay(dst, p []byte) []byte {
	for i := 0; i < len(p); {
		if f.state == ground {
			n := plain(p[i:])
			dst = append(dst, p[i:i+n]...)
			if i += n; i == len(p) {
				break
			}
		}
		var again bool
		if dst, again = f.step(dst, p[i]); !again {
			i++
		}
	}
	return dst
}

// Live appends p, the next bytes of live output, after the beginning of a sequence
// that history left unfinished.
func (f *Filter) Live(dst, p []byte) []byte {
	for f.long && len(p) > 0 { // the terminal did not get its beginning
		var again bool
		if dst, again = f.step(dst, p[0]); !again {
			p = p[1:]
		}
	}
	if f.long {
		return dst
	}
	dst = append(dst, f.pending...)
	f.reset()
	return append(dst, p...)
}

// plain returns the length of the printable ASCII that p begins with.
func plain(p []byte) int {
	for i, b := range p {
		if b < ' ' || b >= del {
			return i
		}
	}
	return len(p)
}

func (f *Filter) reset() { f.state, f.pending, f.long = ground, f.pending[:0], false }

// begin starts a sequence with b.
func (f *Filter) begin(s state, b byte) {
	f.reset()
	f.state, f.pending = s, append(f.pending, b)
}

func (f *Filter) hold(b byte) {
	if f.long = f.long || len(f.pending) == maxSequence; !f.long {
		f.pending = append(f.pending, b)
	}
}

// finish appends the sequence, as rewritten by allow, and returns to text.
func (f *Filter) finish(dst []byte, allow func(dst, seq []byte) []byte) []byte {
	if !f.long {
		dst = allow(dst, f.pending)
	}
	f.reset()
	return dst
}

// step processes one byte. again reports that b ended a sequence without belonging to it
// and must be processed once more.
func (f *Filter) step(dst []byte, b byte) (_ []byte, again bool) {
	if f.state == char {
		return f.char(dst, b)
	}
	switch {
	case b == esc && f.state == text:
		f.hold(b)
		f.state = textEsc
		return dst, false
	case b == esc:
		f.begin(escape, b)
		return dst, false
	case f.state == textEsc:
		return f.afterEsc(dst, b)
	case f.state == ground:
		return f.ground(dst, b), false
	case b == can || b == sub:
		f.reset()
		return dst, false
	case f.state == text:
		return f.text(dst, b), false
	case b < ' ': // a control within a sequence takes effect before it
		if b != enq {
			dst = append(dst, b)
		}
		return dst, false
	case b == del:
		return dst, false
	case b > del:
		f.reset()
		return dst, true
	case f.state == escape:
		return f.escape(dst, b), false
	}
	return f.control(dst, b), false
}

func (f *Filter) ground(dst []byte, b byte) []byte {
	switch {
	case b < utf8.RuneSelf && b != enq:
		dst = append(dst, b)
	case b >= utf8.RuneSelf:
		f.begin(char, b)
		return f.rune(dst)
	}
	return dst
}

// char processes the next byte within a rune.
func (f *Filter) char(dst []byte, b byte) (_ []byte, again bool) {
	if b&0xc0 != 0x80 {
		f.reset()
		return append(dst, replacement...), true
	}
	f.hold(b)
	return f.rune(dst), false
}

// rune appends the buffered rune if it is complete.
func (f *Filter) rune(dst []byte) []byte {
	if !utf8.FullRune(f.pending) {
		return dst
	}
	r, n := utf8.DecodeRune(f.pending)
	switch {
	case r == utf8.RuneError && n == 1: // the rest, if any, is invalid too
		dst = append(dst, replacement...)
	case r < 0xa0: // a C1 control
		dst = append(dst, replacement...)
	default:
		dst = append(dst, f.pending...)
	}
	f.reset()
	return dst
}

func (f *Filter) escape(dst []byte, b byte) []byte {
	f.hold(b)
	switch {
	case b < '0': // an intermediate
		return dst
	case len(f.pending) > 2 || f.long:
	case b == '[':
		f.state = control
		return dst
	case b == ']' || b == 'P' || b == 'X' || b == '^' || b == '_' || b == 'k':
		f.state = text
		return dst
	}
	return f.finish(dst, appendEscape)
}

func (f *Filter) control(dst []byte, b byte) []byte {
	f.hold(b)
	if b < '@' {
		return dst
	}
	return f.finish(dst, appendControl)
}

// text processes a byte of a string. BEL ends an OSC, as ST does.
func (f *Filter) text(dst []byte, b byte) []byte {
	f.hold(b)
	if b == bel && f.pending[1] == ']' {
		return f.finish(dst, appendCommand)
	}
	return dst
}

// afterEsc processes the byte that follows ESC in a string: ST ends the string,
// and any other sequence cancels it.
func (f *Filter) afterEsc(dst []byte, b byte) (_ []byte, again bool) {
	if b != '\\' {
		f.begin(escape, esc)
		return dst, true
	}
	f.hold(b)
	return f.finish(dst, appendCommand), false
}
