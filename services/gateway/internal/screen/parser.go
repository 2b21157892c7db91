package screen

import (
	"unicode/utf8"

	"github.com/charmbracelet/x/ansi/parser"
)

const (
	maxParams = 32
	maxParam  = 1 << 16 // greatest value of a parameter
	maxString = 1 << 10 // bytes kept of the string of an OSC sequence
)

// sink receives what a parser recognizes.
type sink interface {
	ascii(run []byte) // printable, not empty
	print(r rune)     // U+00A0 or above
	execute(b byte)   // C0 or C1 control
	esc(inter, final byte)
	csi(q *csi, final byte)
	osc(data []byte)
}

// csi is a control sequence without its final byte.
type csi struct {
	Prefix byte
	Inter  byte
	N      uint8            // number of parameters
	More   uint32           // bit i: a colon follows parameter i
	Params [maxParams]int32 // -1: missing
}

// param returns parameter i, or otherwise if it is missing or 0.
func (q *csi) param(i, otherwise int) int {
	if i < int(q.N) && q.Params[i] > 0 {
		return int(q.Params[i])
	}
	return otherwise
}

// scanner is the part of a parser's state that has a fixed size.
type scanner struct {
	State  byte
	Part   [utf8.UTFMax]byte // beginning of a UTF-8 character
	PartN  uint8
	Header csi
}

// sequences splits output into text and escape sequences. Bytes that are not UTF-8 are dropped,
// as xterm.js does.
type sequences struct {
	scanner
	str []byte // of an OSC sequence
}

// write parses p.
func (q *sequences) write(p []byte, to sink) {
	for i := 0; i < len(p); {
		b := p[i]
		switch {
		case q.PartN > 0:
			if b&0xC0 != 0x80 {
				q.PartN = 0 // incomplete: dropped
				continue
			}
			i++
			q.Part[q.PartN] = b
			q.PartN++
			if part := q.Part[:q.PartN]; utf8.FullRune(part) {
				q.PartN = 0
				if r, n := utf8.DecodeRune(part); n > 1 {
					q.rune(r, to)
				}
			}
		case b >= utf8.RuneSelf:
			i++
			if b >= 0xC2 && b <= 0xF4 {
				q.Part[0], q.PartN = b, 1
			}
		case q.State == parser.GroundState && b >= ' ' && b < 0x7F:
			from := i
			for i++; i < len(p) && p[i] >= ' ' && p[i] < 0x7F; i++ {
			}
			to.ascii(p[from:i])
		default:
			i++
			q.byte(b, to)
		}
	}
}

// rune parses a character outside ASCII.
func (q *sequences) rune(r rune, to sink) {
	switch {
	case r < 0xA0:
		q.byte(byte(r), to)
	case q.State == parser.GroundState:
		to.print(r)
	case q.State == parser.OscStringState:
		if len(q.str)+utf8.UTFMax <= maxString {
			q.str = utf8.AppendRune(q.str, r)
		}
	case !inString(q.State):
		q.State = parser.GroundState
	}
}

func inString(state byte) bool {
	switch state {
	case parser.DcsStringState, parser.SosStringState, parser.PmStringState, parser.ApcStringState, parser.OscStringState:
		return true
	}
	return false
}

// byte parses an ASCII character or a control.
func (q *sequences) byte(b byte, to sink) {
	state := q.State
	next, action := parser.Table.Transition(state, b)
	q.State = next
	switch action {
	case parser.ExecuteAction:
		to.execute(b)
	case parser.PrefixAction:
		q.Header.Prefix = b
	case parser.CollectAction:
		q.Header.Inter = b
	case parser.ParamAction:
		q.param(b)
	case parser.StartAction:
		q.str = q.str[:0]
	case parser.PutAction:
		if state == parser.OscStringState && len(q.str) < maxString {
			q.str = append(q.str, b)
		}
	case parser.DispatchAction:
		switch state {
		case parser.CsiEntryState, parser.CsiParamState, parser.CsiIntermediateState:
			if h := &q.Header; h.N > 0 || h.Params[0] >= 0 {
				h.N = min(h.N+1, maxParams)
			}
			to.csi(&q.Header, b)
		case parser.EscapeState, parser.EscapeIntermediateState:
			to.esc(q.Header.Inter, b)
		case parser.OscStringState:
			to.osc(q.str)
			q.str = q.str[:0]
		}
	}
	switch next {
	case parser.EscapeState, parser.CsiEntryState, parser.DcsEntryState:
		if next != state || b == 0x1B {
			q.Header = csi{}
			q.Header.Params[0] = -1
		}
	}
}

func (q *sequences) param(b byte) {
	h := &q.Header
	if h.N >= maxParams {
		return
	}
	if b != ';' && b != ':' {
		h.Params[h.N] = min(max(h.Params[h.N], 0)*10+int32(b-'0'), maxParam)
		return
	}
	if b == ':' {
		h.More |= 1 << h.N
	}
	if h.N++; h.N < maxParams {
		h.Params[h.N] = -1
	}
}
