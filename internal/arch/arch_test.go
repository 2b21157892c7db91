package arch

import (
	"bytes"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// source is one Go file of the module.
type source struct {
	path string // relative to the module's root
	dir  string
	test bool
	ast  *ast.File
	text []byte
	pos  *token.FileSet
}

func (s *source) generated() bool { return ast.IsGenerated(s.ast) }

// load parses all files of the module at the root, without side modules.
func load(t *testing.T) []source {
	t.Helper()
	root := filepath.Join("..", "..")
	var all []source
	err := filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, p)
		if err != nil {
			return err
		}
		rel = filepath.ToSlash(rel)
		if d.IsDir() {
			_, side := os.Stat(filepath.Join(p, "go.mod"))
			if rel != "." && (side == nil || strings.HasPrefix(d.Name(), ".") || d.Name() == "testdata" || d.Name() == "node_modules") {
				return filepath.SkipDir
			}
			return nil
		}
		if path.Ext(rel) != ".go" {
			return nil
		}
		text, err := os.ReadFile(p)
		if err != nil {
			return err
		}
		all = append(all, parse(t, rel, text))
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(all) < 20 {
		t.Fatalf("%d files found: is this the module's root?", len(all))
	}
	return all
}

// parse parses one file; its path is relative to the module's root.
func parse(t *testing.T, rel string, text []byte) source {
	t.Helper()
	pos := token.NewFileSet()
	f, err := parser.ParseFile(pos, rel, text, parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	return source{rel, strings.TrimPrefix(path.Dir(rel), "."), strings.HasSuffix(rel, "_test.go"), f, text, pos}
}

// ruleFor returns the rule that applies to a folder.
func ruleFor(dir string) (rule, bool) {
	best, found := rule{}, false
	for _, r := range rules {
		in := dir == r.path || r.path != "" && strings.HasPrefix(dir, r.path+"/")
		if in && (!found || len(r.path) > len(best.path)) {
			best, found = r, true
		}
	}
	return best, found
}

// matches reports whether an import matches a pattern.
func matches(pattern, imp string) bool {
	if first, _, _ := strings.Cut(pattern, "/"); !strings.Contains(first, ".") {
		pattern = mod + "/" + pattern
	}
	if base, ok := strings.CutSuffix(pattern, "/..."); ok {
		return imp == base || strings.HasPrefix(imp, base+"/")
	}
	return imp == pattern
}

// allowed reports whether a rule allows an import. Tests may import more.
func allowed(r *rule, imp string, test bool) bool {
	if first, _, _ := strings.Cut(imp, "/"); !strings.Contains(first, ".") {
		return test || !slices.Contains(guarded, imp) || slices.Contains(r.std, imp)
	}
	if imp == mod+"/"+r.path || r.path != "" && strings.HasPrefix(imp, mod+"/"+r.path+"/internal/") {
		return true
	}
	if test && slices.ContainsFunc(testsMay, func(p string) bool { return matches(p, imp) }) {
		return true
	}
	if test && slices.ContainsFunc(r.tests, func(p string) bool { return matches(p, imp) }) {
		return true
	}
	return slices.ContainsFunc(r.may, func(p string) bool { return matches(p, imp) })
}

func TestImports(t *testing.T) {
	for _, s := range load(t) {
		r, ok := ruleFor(s.dir)
		if !ok {
			t.Errorf("%s: the folder %q has no rule in imports_test.go", s.path, s.dir)
			continue
		}
		for _, i := range s.ast.Imports {
			imp, err := strconv.Unquote(i.Path.Value)
			if err != nil {
				t.Fatal(err)
			}
			if sub := strings.HasPrefix(imp, mod+"/"+s.dir+"/"); !allowed(&r, imp, s.test) && !(s.test && sub) {
				t.Errorf("%s imports %s, which the rule for %q does not allow", s.path, imp, r.path)
			}
		}
	}
}

func TestRulesAreUsed(t *testing.T) {
	have := make(map[string]bool)
	for _, s := range load(t) {
		for d := s.dir; d != "." && d != ""; d = path.Dir(d) {
			have[d] = true
		}
	}
	for _, r := range rules {
		if r.path != "" && !have[r.path] {
			t.Errorf("the folder %q of a rule does not exist", r.path)
		}
	}
}

func TestRulesRejectImports(t *testing.T) {
	tests := []struct {
		name, dir, imp string
		test, want     bool
	}{
		{"JetStream only in events", "services/gateway/internal/core", "github.com/nats-io/nats.go/jetstream", false, false},
		{"JetStream only in the store", "events", "github.com/nats-io/nats.go/jetstream", false, false},
		{"JetStream in the store", "events/internal/store", "github.com/nats-io/nats.go/jetstream", false, true},
		{"JetStream in a test of the log", "events", "github.com/nats-io/nats.go/jetstream", true, true},
		{"fiber only in gateway", "services/hostd", "github.com/gofiber/fiber/v2", false, false},
		{"no fiber in the core", "services/gateway/internal/core", "github.com/gofiber/fiber/v2", false, false},
		{"fiber in a surface", "services/gateway/internal/connect", "github.com/gofiber/fiber/v2", false, true},
		{"no service into another", "services/scheduler", mod + "/services/reaper", false, false},
		{"os/exec only in hostd", "internal/cli", "os/exec", false, false},
		{"os/exec in a test", "internal/cli", "os/exec", true, true},
		{"os/exec in a driver", "services/hostd/internal/driver/direct", "os/exec", false, true},
		{"main only runs the app", "", mod + "/services/hostd", false, false},
		{"no record in the client", "internal/cli/client", mod + "/events", false, false},
		{"no command in the client", "internal/cli/client", mod + "/internal/cli/command", false, false},
		{"no I/O in the vocabulary", "events/process", "net/http", false, false},
		{"no NATS in the vocabulary", "events/process", "github.com/nats-io/nats.go", false, false},
		{"the server only in natsd", "events", "github.com/nats-io/nats-server/v2/server", false, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r, ok := ruleFor(tt.dir)
			if got := ok && allowed(&r, tt.imp, tt.test); got != tt.want {
				t.Errorf("%s may import %s: %v, want %v", tt.dir, tt.imp, got, tt.want)
			}
		})
	}
}

func TestEachPackageHasOneDoc(t *testing.T) {
	docs, seen := make(map[string][]string), make(map[string]bool)
	for _, s := range load(t) {
		if s.test || s.generated() {
			continue
		}
		seen[s.dir] = true
		if s.ast.Doc != nil {
			docs[s.dir] = append(docs[s.dir], s.path)
		}
	}
	for dir := range seen {
		if n := len(docs[dir]); n != 1 {
			t.Errorf("package in %q has %d package docs: %v", dir, n, docs[dir])
		}
	}
}

const (
	maxFile     = 600
	maxFunction = 80
)

func TestSizes(t *testing.T) {
	for _, s := range load(t) {
		if s.generated() {
			continue
		}
		if n := bytes.Count(s.text, []byte("\n")); n > maxFile {
			t.Errorf("%s has %d lines, the limit is %d", s.path, n, maxFile)
		}
		for _, d := range s.ast.Decls {
			f, ok := d.(*ast.FuncDecl)
			if !ok || s.test {
				continue
			}
			if n := s.pos.Position(f.End()).Line - s.pos.Position(f.Pos()).Line + 1; n > maxFunction {
				t.Errorf("%s: %s has %d lines, the limit is %d", s.path, f.Name.Name, n, maxFunction)
			}
		}
	}
}
