package vtfilter

import (
	"bytes"
	"slices"
	"strings"
	"unicode/utf8"
)

// appendEscape appends a sequence of ESC, intermediates and a final byte if it is safe.
func appendEscape(dst, seq []byte) []byte {
	final := seq[len(seq)-1]
	ok := false
	switch {
	case len(seq) == 2:
		// Not Z, which queries the terminal's identity.
		ok = strings.IndexByte("6789=>cDEHMNOlmno|}~", final) >= 0
	case strings.IndexByte("()*+-./", seq[1]) >= 0: // character sets
		ok = true
	case len(seq) == 3 && seq[1] == '#': // sizes of lines, alignment test
		ok = final <= '9'
	}
	if ok {
		dst = append(dst, seq...)
	}
	return dst
}

// appendControl appends the safe part of a sequence of ESC [, parameters, intermediates
// and a final byte.
func appendControl(dst, seq []byte) []byte {
	body, final := seq[2:len(seq)-1], seq[len(seq)-1]
	var prefix []byte
	if len(body) > 0 && strings.IndexByte("<=>?", body[0]) >= 0 {
		prefix, body = body[:1], body[1:]
	}
	n := bytes.IndexFunc(body, func(r rune) bool { return r < '0' || r > ';' })
	if n < 0 {
		n = len(body)
	}
	params, kind := body[:n], string(prefix)+string(body[n:])
	switch {
	case kind == "?" && (final == 'h' || final == 'l' || final == 'r'):
		return appendModes(dst, params, final)
	case kind == "" && final == 't':
		if slices.Contains([]string{"22", "23"}, string(first(params))) { // the stack of titles
			dst = append(dst, seq...)
		}
	case kind == "" && final == 'T' && bytes.IndexByte(params, ';') >= 0: // mouse highlighting
	case strings.IndexByte(safe(kind), final) >= 0:
		dst = append(dst, seq...)
	}
	return dst
}

// safe returns the final bytes of sequences that terminals do not answer, by their prefix
// and intermediates.
func safe(kind string) string {
	switch kind {
	case "":
		return "@ABCDEFGHIJKLMPSTXZ`abdefghjklmrsu"
	case "?":
		return "JKWs"
	case ">":
		return "mnpu"
	case "<", "=":
		return "u"
	case " ":
		return "@Aq"
	case "!":
		return "p"
	case `"`:
		return "q"
	case "$":
		return "rtvxz{"
	case "'":
		return "}~"
	case "*":
		return "x"
	case "#":
		return "pq{}"
	}
	return ""
}

func first(params []byte) []byte {
	param, _, _ := bytes.Cut(params, []byte(";"))
	return param
}

// appendModes appends a sequence that sets, resets or restores private modes, without the
// unsafe modes.
func appendModes(dst, params []byte, final byte) []byte {
	var safe [][]byte
	for p := range bytes.SplitSeq(params, []byte(";")) {
		switch mode := strings.TrimLeft(string(p), "0"); {
		case final == 'l' && mode != "2": // 2: VT52
		case final == 'l':
			continue
		case slices.Contains([]string{"38", "1004", "2031", "2048"}, mode) || strings.Contains(mode, ":"):
			continue
		}
		safe = append(safe, p)
	}
	if len(safe) == 0 {
		return dst
	}
	dst = append(dst, "\x1b[?"...)
	dst = append(dst, bytes.Join(safe, []byte(";"))...)
	return append(dst, final)
}

// appendCommand appends a string with its introducer and terminator if it is a safe OSC.
func appendCommand(dst, seq []byte) []byte {
	if seq[1] != ']' {
		return dst
	}
	body := bytes.TrimSuffix(bytes.TrimSuffix(seq[2:], []byte{bel}), []byte("\x1b\\"))
	number, _, _ := bytes.Cut(body, []byte(";"))
	ok := false
	switch string(number) {
	case "0", "1", "2", "7", "8", "133": // titles, directory, links, prompt marks
		ok = true
	case "4", "5", "10", "11", "12", "13", "14", "15", "16", "17", "18", "19": // colors; ? queries one
		ok = bytes.IndexByte(body, '?') < 0
	case "104", "105", "110", "111", "112", "113", "114", "115", "116", "117", "118", "119":
		ok = true
	}
	if ok && isText(body) {
		dst = append(dst, seq...)
	}
	return dst
}

// isText reports whether b is UTF-8 without control characters.
func isText(b []byte) bool {
	return utf8.Valid(b) && bytes.IndexFunc(b, func(r rune) bool { return r < ' ' || r >= del && r < 0xa0 }) < 0
}
