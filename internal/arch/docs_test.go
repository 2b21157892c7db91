package arch

import (
	"go/ast"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var (
	codeSpan = regexp.MustCompile("`([^`\n]+)`")
	goFile   = regexp.MustCompile(`^[a-z0-9_./-]+\.go$`)
	folder   = regexp.MustCompile(`^[a-z0-9]+(?:/[a-z0-9-]+)+$`)
	testName = regexp.MustCompile(`^(?:[a-z0-9]+\.)?…?((?:Test|Fuzz|Benchmark)[A-Za-z0-9_]*)[…*]?(?:/(.*))?$`)
)

// TestDocsNameWhatExists checks that the tests, Go files and folders that Markdown files
// name in code spans exist. An ellipsis stands for the rest of a name.
func TestDocsNameWhatExists(t *testing.T) {
	var files, folders, tests, texts []string
	docs := make(map[string]string)
	prose(t, func(rel string, text []byte) {
		if path.Ext(rel) == ".md" {
			docs[rel] = string(text)
			return
		}
		files, texts = append(files, rel), append(texts, string(text))
		if dir := path.Dir(rel); !slices.Contains(folders, dir) {
			folders = append(folders, dir)
		}
		if !strings.Contains(rel, "test") {
			return
		}
		for _, d := range parse(t, rel, text).ast.Decls {
			if f, ok := d.(*ast.FuncDecl); ok {
				tests = append(tests, f.Name.Name)
			}
		}
	})
	suffix := func(all []string, name string) bool {
		return slices.ContainsFunc(all, func(have string) bool { return have == name || strings.HasSuffix(have, "/"+name) })
	}
	part := func(all []string, name string) bool {
		return slices.ContainsFunc(all, func(have string) bool { return strings.Contains(have, name) })
	}
	for doc, text := range docs {
		for _, m := range codeSpan.FindAllStringSubmatch(text, -1) {
			name := m[1]
			if test := testName.FindStringSubmatch(name); test != nil {
				whole := !strings.ContainsAny(name, "…*")
				if whole && test[2] == "" && !slices.Contains(tests, test[1]) || !part(tests, test[1]) {
					t.Errorf("%s: there is no test %s", doc, name)
				}
				if sub := strings.Trim(test[2], "… "); sub != "" && !part(texts, sub) {
					t.Errorf("%s: there is no sub-test %s", doc, name)
				}
				continue
			}
			switch {
			case strings.HasPrefix(name, "…"):
				if sub := strings.Trim(name, "…:/ "); sub != "" && !part(texts, sub) {
					t.Errorf("%s: there is no test %s", doc, name)
				}
			case goFile.MatchString(name):
				if !suffix(files, name) {
					t.Errorf("%s: there is no file %s", doc, name)
				}
			case folder.MatchString(name) && doc == "ARCHITECTURE.md" && !slices.Contains(guarded, name):
				if !suffix(folders, name) && !part(folders, name+"/") {
					t.Errorf("%s: there is no folder %s", doc, name)
				}
			}
		}
	}
}
