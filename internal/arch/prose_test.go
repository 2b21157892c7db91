package arch

import (
	"bufio"
	"fmt"
	"go/ast"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// habit is a pattern of English that this repository does not use. A match is reported
// unless fine accepts it, which receives the text and the bounds of the first group.
type habit struct {
	name    string
	pattern *regexp.Regexp
	fine    func(text string, start, end int) bool
	advice  string
}

// habits returns the patterns. Quoted text never matches: plain removes it first.
func habits() []habit {
	word := func(words string) *regexp.Regexp { return regexp.MustCompile(`(?i)\b(` + words + `)\b`) }
	return []habit{
		{"head-noun", word("who|whoever"), hasHead, "name the actor: a relative clause needs a head noun"},
		{"actor", word("nobody|somebody|anybody|everybody|someone|anyone|no[\\s-]one"), isUser, "name the program: the host, another gateway, a second writer"},
		{"pronoun", word("he|his|him|himself"), nil, "a thing is an it"},
		{"absence", regexp.MustCompile(`(?i)([a-z]+)\s+(?:is|are|was|were)\s+none\b`), isThere, "say what is: does not exist, is empty, is invalid"},
	}
}

// persons are the nouns after which "who" is correct.
var persons = regexp.MustCompile(`(?i)\b(?:administrators?|attackers?|authors?|contributors?|customers?|developers?|engineers?|humans?|maintainers?|newcomers?|operators?|owners?|people|persons?|reviewers?|strangers?|those|users?),?\s+(?:and\s+|or\s+)?$`)

// question matches the text before a "who" that begins a direct or an indirect question.
var question = regexp.MustCompile(`(?i)\b(?:ask|asks|asked|decide|decides|decided|identify|identifies|prove|proves)\s+$`)

func hasHead(text string, start, end int) bool {
	before := text[:start]
	if persons.MatchString(before) || question.MatchString(before) {
		return true
	}
	first := strings.TrimRight(before, " \n")
	if first != "" && !strings.ContainsAny(first[len(first)-1:], ".!?:;(") {
		return false
	}
	stop := strings.IndexAny(text[end:], ".?!;")
	return stop >= 0 && text[end+stop] == '?'
}

// userName matches the text before the name of Unix's least privileged user, in a sentence
// or in a command line.
var userName = regexp.MustCompile(`(?i)(?:\b(?:user|uid|group|owner|as|nobody)|\s-[a-z]+|/\S+)\s+(?:named\s+)?$`)

// isUser reports whether the word is the name of Unix's least privileged user.
func isUser(text string, start, end int) bool {
	return text[start:end] == "nobody" && (userName.MatchString(text[:start]) || strings.HasPrefix(text[end:], ":") || strings.HasPrefix(text[end:], "-"))
}

// isThere reports whether the word before the verb is "there", as in "there are none".
func isThere(text string, start, end int) bool { return strings.EqualFold(text[start:end], "there") }

var quoted = regexp.MustCompile("`[^`]*`|\"[^\"]*\"|“[^”]*”")

// plain blanks quoted text, which may be an example or a name, and keeps its length.
func plain(text string) string {
	return quoted.ReplaceAllStringFunc(text, func(q string) string {
		return strings.Map(func(r rune) rune {
			if r == '\n' {
				return r
			}
			return '_'
		}, q)
	})
}

// finding is one match of a habit.
type finding struct {
	habit, advice, excerpt string
	line                   int // of the text, from 0
}

// inProse returns the habits that a text has.
func inProse(text string) []finding {
	text = plain(text)
	var all []finding
	for _, h := range habits() {
		for _, m := range h.pattern.FindAllStringSubmatchIndex(text, -1) {
			if h.fine != nil && h.fine(text, m[2], m[3]) {
				continue
			}
			from, to := max(0, m[0]-30), min(len(text), m[1]+30)
			excerpt := strings.Join(strings.Fields(strings.ToValidUTF8(text[from:to], "")), " ")
			all = append(all, finding{h.name, h.advice, excerpt, strings.Count(text[:m[0]], "\n")})
		}
	}
	return all
}

// paragraph is a text that is read as one.
type paragraph struct {
	text string
	line int // of its first line
}

// ofMarkdown returns the paragraphs of a Markdown file: code blocks are left out, and
// each item of a list and each row of a table is a paragraph.
func ofMarkdown(text string) []paragraph {
	var all []paragraph
	var open bool
	fence := false
	for i, line := range strings.Split(text, "\n") {
		trimmed := strings.TrimSpace(line)
		switch {
		case strings.HasPrefix(trimmed, "```"):
			fence, open = !fence, false
		case fence || trimmed == "":
			open = false
		case open && !strings.HasPrefix(trimmed, "|") && !strings.HasPrefix(trimmed, "- ") && !strings.HasPrefix(trimmed, "#"):
			all[len(all)-1].text += "\n" + line
		default:
			all = append(all, paragraph{strings.ReplaceAll(line, "|", ".\t"), i + 1})
			open = !strings.HasPrefix(trimmed, "#") && !strings.HasPrefix(trimmed, "|")
		}
	}
	return all
}

// ofGo returns the comments and the string literals of a Go file. Directives and indented
// code in comments are left out, and so are strings of one word, which are no sentences.
func ofGo(f *ast.File, pos *token.FileSet) []paragraph {
	var all []paragraph
	for _, group := range f.Comments {
		var lines []string
		for _, c := range group.List {
			for _, line := range strings.Split(strings.TrimSuffix(strings.TrimPrefix(c.Text, "/*"), "*/"), "\n") {
				line = strings.TrimPrefix(line, "//")
				if strings.HasPrefix(line, "go:") || strings.HasPrefix(line, "nolint:") && !strings.Contains(line, "//") || strings.HasPrefix(line, "\t") {
					line = ""
				}
				lines = append(lines, line)
			}
		}
		all = append(all, paragraph{strings.Join(lines, "\n"), pos.Position(group.Pos()).Line})
	}
	ast.Inspect(f, func(n ast.Node) bool {
		if i, ok := n.(*ast.ImportSpec); ok && i.Path != nil {
			return false
		}
		lit, ok := n.(*ast.BasicLit)
		if !ok || lit.Kind != token.STRING {
			return true
		}
		if s, err := strconv.Unquote(lit.Value); err == nil && strings.Contains(strings.TrimSpace(s), " ") {
			all = append(all, paragraph{s, pos.Position(lit.Pos()).Line})
		}
		return true
	})
	return all
}

var flagVar = regexp.MustCompile(`^(?:Bool|Count|Duration|Float(?:32|64)|Int(?:8|16|32|64|Slice)?|IP|String(?:Array|Slice|ToString)?|Uint(?:8|16|32|64)?)?VarP?$`)

// badHelp returns the flags of a file whose help does not say what they set.
func badHelp(f *ast.File, pos *token.FileSet) []string {
	var all []string
	ast.Inspect(f, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok || len(call.Args) < 3 {
			return true
		}
		sel, ok := call.Fun.(*ast.SelectorExpr)
		if !ok || !flagVar.MatchString(sel.Sel.Name) {
			return true
		}
		if help := firstLiteral(call.Args[len(call.Args)-1]); strings.HasPrefix(help, "of ") || strings.HasPrefix(help, "that ") {
			all = append(all, fmt.Sprintf("%s: a flag's help must say what it sets: %q", pos.Position(call.Pos()), help))
		}
		return true
	})
	return all
}

// firstLiteral returns the string that an expression begins with.
func firstLiteral(e ast.Expr) string {
	for {
		switch x := e.(type) {
		case *ast.BinaryExpr:
			e = x.X
		case *ast.CallExpr:
			if len(x.Args) == 0 {
				return ""
			}
			e = x.Args[0]
		case *ast.BasicLit:
			s, _ := strconv.Unquote(x.Value)
			return s
		default:
			return ""
		}
	}
}

// badDocs returns the exported functions, methods and types, and the variables and
// constants outside of groups, whose comments do not start with their name.
func badDocs(f *ast.File, pos *token.FileSet) []string {
	var all []string
	check := func(name string, doc *ast.CommentGroup) {
		if doc == nil || !ast.IsExported(name) {
			return
		}
		text := strings.TrimSpace(doc.Text())
		for _, article := range []string{"A ", "An ", "The ", "Deprecated: "} {
			text = strings.TrimPrefix(text, article)
		}
		if rest, ok := strings.CutPrefix(text, name); text != "" && (!ok || rest != "" && (rest[0] == '_' || rest[0] >= '0' && rest[0] <= '9' || rest[0] >= 'A' && rest[0] <= 'Z' || rest[0] >= 'a' && rest[0] <= 'z')) {
			all = append(all, fmt.Sprintf("%s: the comment of %s must start with its name", pos.Position(doc.Pos()), name))
		}
	}
	for _, d := range f.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			if d.Recv == nil || ast.IsExported(receiver(d)) {
				check(d.Name.Name, d.Doc)
			}
		case *ast.GenDecl:
			for _, spec := range d.Specs {
				switch spec := spec.(type) {
				case *ast.TypeSpec:
					doc := spec.Doc
					if doc == nil && !d.Lparen.IsValid() {
						doc = d.Doc
					}
					check(spec.Name.Name, doc)
				case *ast.ValueSpec:
					if !d.Lparen.IsValid() && len(spec.Names) == 1 {
						check(spec.Names[0].Name, d.Doc)
					}
				}
			}
		}
	}
	return all
}

// prose walks the Go and Markdown files of the repository, side modules included. It
// calls visit with the path, relative to the root, and the content of each.
func prose(t *testing.T, visit func(rel string, text []byte)) {
	t.Helper()
	root := filepath.Join("..", "..")
	err := filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			if p != root && (strings.HasPrefix(d.Name(), ".") || d.Name() == "testdata" || d.Name() == "node_modules" || d.Name() == "dist") {
				return filepath.SkipDir
			}
			return nil
		}
		if ext := path.Ext(d.Name()); ext != ".go" && ext != ".md" {
			return nil
		}
		rel, err := filepath.Rel(root, p)
		if err != nil {
			return err
		}
		text, err := os.ReadFile(p)
		if err != nil {
			return err
		}
		visit(filepath.ToSlash(rel), text)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestHabits runs the patterns over the sentences of testdata/prose.txt. A line is the
// name of the habit that the sentence has, or "-" for none, then the sentence.
func TestHabits(t *testing.T) {
	f, err := os.Open(filepath.Join("testdata", "prose.txt"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	seen := make(map[string]int)
	for lines := bufio.NewScanner(f); lines.Scan(); {
		want, sentence, ok := strings.Cut(lines.Text(), "\t")
		if !ok {
			continue // a comment
		}
		seen[want]++
		got := "-"
		if found := inProse(strings.ReplaceAll(sentence, `\n`, "\n")); len(found) > 0 {
			got = found[0].habit
		}
		if got != want {
			t.Errorf("%q: got %s, want %s", sentence, got, want)
		}
	}
	for _, h := range habits() {
		if seen[h.name] < 3 {
			t.Errorf("%s has %d sentences, want at least 3", h.name, seen[h.name])
		}
	}
}

// TestHabitsOfGo checks what is read of a Go file, which comments count as documentation,
// and which calls as flags.
func TestHabitsOfGo(t *testing.T) {
	name := filepath.Join("testdata", "prose.go.txt")
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	s := parse(t, "prose.go", text)
	var got []string
	for _, p := range ofGo(s.ast, s.pos) {
		for _, f := range inProse(p.text) {
			got = append(got, fmt.Sprintf("%d %s", p.line+f.line, f.habit))
		}
	}
	for _, at := range append(badDocs(s.ast, s.pos), badHelp(s.ast, s.pos)...) {
		line := strings.Split(at, ":")[1]
		got = append(got, line+" "+map[bool]string{true: "help", false: "doc"}[strings.Contains(at, "flag's help")])
	}
	var want []string
	for i, line := range strings.Split(string(text), "\n") {
		if _, mark, ok := strings.Cut(line, "// want "); ok {
			want = append(want, fmt.Sprintf("%d %s", i+1, mark))
		}
	}
	slices.Sort(got)
	slices.Sort(want)
	if strings.Join(got, "; ") != strings.Join(want, "; ") {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestHabitsOfMarkdown(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("testdata", "prose.md.txt"))
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, p := range ofMarkdown(string(text)) {
		for _, f := range inProse(p.text) {
			got = append(got, fmt.Sprintf("%d %s", p.line+f.line, f.habit))
		}
	}
	if want := "3 pronoun; 5 head-noun; 14 actor"; strings.Join(got, "; ") != want {
		t.Errorf("got %v, want %s", got, want)
	}
}
