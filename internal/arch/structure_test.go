package arch

import (
	"bytes"
	"fmt"
	"go/ast"
	"slices"
	"strings"
	"testing"
)

// The targets for the size of types and packages.
const (
	maxMethods = 40
	maxFields  = 25
	maxLines   = 3000 // of a package, without tests and generated code
)

// oversized are the types and packages that exceed a target today, with the most that each
// may have. A figure only shrinks: the test fails when one of them grows, and when it no
// longer exceeds its target and its line can go. Figures of lines are rounded up to 50.
var oversized = map[string]int{}

// structure returns the methods of each type, the fields of each struct and the lines of
// each package.
func structure(all []source) (methods, fields map[string]map[string]bool, lines map[string]int) {
	methods, fields, lines = make(map[string]map[string]bool), make(map[string]map[string]bool), make(map[string]int)
	add := func(to map[string]map[string]bool, key, name string) {
		if to[key] == nil {
			to[key] = make(map[string]bool)
		}
		to[key][name] = true // once, also where each system has a file of its own
	}
	for _, s := range all {
		if s.test || s.generated() || strings.HasSuffix(s.dir, "test") { // contract suites
			continue
		}
		lines[s.dir] += bytes.Count(s.text, []byte("\n"))
		for _, d := range s.ast.Decls {
			switch d := d.(type) {
			case *ast.FuncDecl:
				if d.Recv != nil {
					add(methods, s.dir+"."+receiver(d), d.Name.Name)
				}
			case *ast.GenDecl:
				for _, spec := range d.Specs {
					ts, ok := spec.(*ast.TypeSpec)
					if !ok {
						continue
					}
					st, ok := ts.Type.(*ast.StructType)
					if !ok || settings(ts.Name.Name) {
						continue
					}
					for i, f := range st.Fields.List {
						for _, name := range f.Names {
							add(fields, s.dir+"."+ts.Name.Name, name.Name)
						}
						if len(f.Names) == 0 {
							add(fields, s.dir+"."+ts.Name.Name, fmt.Sprint("embedded ", i))
						}
					}
				}
			}
		}
	}
	return methods, fields, lines
}

// settings reports whether a struct holds flags or the configuration of a service, by its
// name: those have a field for each setting.
func settings(name string) bool {
	name = strings.ToLower(name)
	return strings.HasSuffix(name, "config") || strings.HasSuffix(name, "flags") || strings.HasSuffix(name, "options")
}

// excess returns what exceeds its target, by the keys of oversized.
func excess(all []source) map[string]int {
	out := make(map[string]int)
	methods, fields, lines := structure(all)
	for name, m := range methods {
		if len(m) > maxMethods {
			out["methods of "+name] = len(m)
		}
	}
	for name, f := range fields {
		if len(f) > maxFields {
			out["fields of "+name] = len(f)
		}
	}
	for dir, n := range lines {
		if n > maxLines {
			out["lines of "+dir] = n
		}
	}
	return out
}

func TestStructure(t *testing.T) {
	var problems []string
	now := excess(load(t))
	for name, n := range now {
		if most, ok := oversized[name]; !ok {
			problems = append(problems, fmt.Sprintf("%s: %d, which exceeds the target", name, n))
		} else if n > most {
			problems = append(problems, fmt.Sprintf("%s: %d, which may not exceed %d", name, n, most))
		}
	}
	for name := range oversized {
		if _, ok := now[name]; !ok {
			problems = append(problems, name+" no longer exceeds its target: remove its line")
		}
	}
	slices.Sort(problems)
	for _, p := range problems {
		t.Error(p)
	}
}

func TestStructureIsMeasured(t *testing.T) {
	var text strings.Builder
	text.WriteString("package p\ntype big struct {\n\tother\n")
	for i := range maxFields {
		fmt.Fprintf(&text, "\tf%d int\n", i)
	}
	text.WriteString("}\ntype bigConfig struct {\n")
	for i := range maxFields + 1 {
		fmt.Fprintf(&text, "\tf%d int\n", i)
	}
	text.WriteString("}\n")
	for i := range maxMethods + 1 {
		fmt.Fprintf(&text, "func (b *big[T]) m%d() {}\n", i)
	}
	text.WriteString(strings.Repeat("\n", maxLines))
	got := excess([]source{parse(t, "a/p/p.go", []byte(text.String())), parse(t, "a/ptest/p.go", []byte(text.String())), parse(t, "a/p/p_test.go", []byte(text.String()))})
	for name, want := range map[string]int{"methods of a/p.big": maxMethods + 1, "fields of a/p.big": maxFields + 1} {
		if got[name] != want {
			t.Errorf("%s: %d, want %d", name, got[name], want)
		}
	}
	if _, ok := got["lines of a/p"]; !ok || len(got) != 3 {
		t.Errorf("got %v", got)
	}
}
