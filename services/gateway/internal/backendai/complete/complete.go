package complete

import (
	"encoding/json"
	"regexp"
	"strings"
	"unicode/utf8"
)

// Request is a request for completions.
type Request struct {
	Code    string
	Options Options
}

// Options are the position of the cursor.
type Options struct {
	Post string // text after the cursor
	Line string // line of the cursor
	Row  int    // number of that line in the code; without Col, 0 is the last one
	Col  int    // number of characters before the cursor in the line
}

// Prefix returns the text before the cursor in its line.
func (r *Request) Prefix() string {
	line := r.Options.Line
	if lines := strings.Split(r.Code, "\n"); line == "" {
		line = lines[len(lines)-1]
		if at := r.Options; at.Row >= 0 && at.Row < len(lines) && (at.Row > 0 || at.Col > 0) {
			line = lines[at.Row]
		}
	}
	n := 0
	for i := range line {
		if n == r.Options.Col && r.Options.Col > 0 {
			return line[:i]
		}
		n++
	}
	return line
}

const (
	maxWord = 256
	// Max is the maximum number of completions.
	Max = 200
)

var (
	dotted = regexp.MustCompile(`[\p{L}_][\p{L}\p{N}_.]*$`)
	word   = regexp.MustCompile(`[^\s;|&()<>'"` + "`" + `\\]+$`)
	script = regexp.MustCompile(`[A-Za-z_$][\w$.]*$`)
)

// Code returns the code that prints the completions of the text before the cursor, one in each line,
// and false if there are none for the text or the language.
func Code(language, prefix string) (string, bool) {
	if !utf8.ValidString(prefix) {
		return "", false
	}
	switch language {
	case "python":
		return python(dotted.FindString(prefix))
	case "bash":
		return bash(prefix, word.FindString(prefix))
	case "javascript", "typescript":
		return javascript(script.FindString(prefix))
	}
	return "", false
}

func python(text string) (string, bool) {
	if text == "" || len(text) > maxWord {
		return "", false
	}
	quoted, err := json.Marshal(text)
	if err != nil {
		return "", false
	}
	// The code leaves no names behind, and does not depend on names that the user may have replaced.
	return `(lambda c, t: __import__("builtins").print("\n".join(__import__("builtins").dict.fromkeys(m.rstrip("(").rstrip() for m in __import__("builtins").iter(lambda n=__import__("itertools").count(): c.complete(t, n.__next__()), None)))))(__import__("rlcompleter").Completer(__import__("builtins").globals()), ` + string(quoted) + `)`, true
}

// bash completes a command if the word is the first one, a variable after $, and a file otherwise.
func bash(prefix, text string) (string, bool) {
	if text == "" || len(text) > maxWord {
		return "", false
	}
	if name, ok := strings.CutPrefix(text, "$"); ok {
		return `builtin compgen -v -P '$' -- ` + quote(name) + ` || builtin :`, true
	}
	code := ""
	if before := strings.TrimSpace(strings.TrimSuffix(prefix, text)); before == "" || strings.ContainsAny(before[len(before)-1:], ";|&(") {
		code = `builtin compgen -c -- ` + quote(text) + `; `
	}
	return code + `builtin compgen -f -- ` + quote(text) + ` || builtin :`, true
}

func quote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }

func javascript(text string) (string, bool) {
	if text == "" || len(text) > maxWord || strings.Contains(text, "..") {
		return "", false
	}
	base, last := "globalThis", text
	if i := strings.LastIndexByte(text, '.'); i >= 0 {
		base, last = text[:i], text[i+1:]
	}
	return `((o, w, p) => { const s = new Set(); for (let q = o == null ? null : Object(o); q; q = Object.getPrototypeOf(q)) Object.getOwnPropertyNames(q).forEach(n => s.add(n)); console.log([...s].filter(n => n.startsWith(w)).map(n => p + n).join("\n")); })(` +
		base + `, "` + last + `", "` + strings.TrimSuffix(text, last) + `")`, true
}

// Parse returns the completions in what the code printed.
func Parse(out string) []string {
	all, seen := []string{}, make(map[string]bool)
	for line := range strings.Lines(out) {
		if line = strings.TrimRight(line, "\r\n"); line != "" && !seen[line] && len(all) < Max {
			seen[line] = true
			all = append(all, line)
		}
	}
	return all
}
