package arch

import (
	"go/ast"
	"go/token"
	"slices"
	"strings"
	"testing"
)

func TestNoInit(t *testing.T) {
	for _, s := range load(t) {
		if s.generated() {
			continue
		}
		for _, d := range s.ast.Decls {
			if f, ok := d.(*ast.FuncDecl); ok && f.Recv == nil && f.Name.Name == "init" {
				t.Errorf("%s has an init: say it where it is needed", s.pos.Position(f.Pos()))
			}
		}
	}
}

// Tests wait for what they wait for: a sleep is either too short or too long.
func TestNoSleepInTests(t *testing.T) {
	for _, s := range load(t) {
		if !s.test {
			continue
		}
		ast.Inspect(s.ast, func(n ast.Node) bool {
			sel, ok := n.(*ast.SelectorExpr)
			if !ok || sel.Sel.Name != "Sleep" {
				return true
			}
			if x, ok := sel.X.(*ast.Ident); ok && x.Name == "time" && x.Obj == nil {
				t.Errorf("%s sleeps: wait on a channel or a condition", s.pos.Position(n.Pos()))
			}
			return true
		})
	}
}

// A package's variables are errors, tables and things made once: nothing
// assigns to one, to an element or a field of one, or takes its address.
func TestNoMutableGlobals(t *testing.T) {
	globals := make(map[string]map[string]bool) // by folder
	all := load(t)
	for _, s := range all {
		if s.test || s.generated() {
			continue
		}
		if globals[s.dir] == nil {
			globals[s.dir] = make(map[string]bool)
		}
		for _, d := range s.ast.Decls {
			g, ok := d.(*ast.GenDecl)
			if !ok || g.Tok != token.VAR || linked(g) {
				continue
			}
			for _, spec := range g.Specs {
				for _, name := range spec.(*ast.ValueSpec).Names {
					globals[s.dir][name.Name] = name.Name != "_" // nothing is kept in it
				}
			}
		}
	}
	for _, s := range all {
		if s.test || s.generated() || len(globals[s.dir]) == 0 {
			continue
		}
		for _, at := range mutations(&s, globals[s.dir]) {
			t.Errorf("%s changes a global", at)
		}
	}
}

// linked reports whether a variable is another module's.
func linked(g *ast.GenDecl) bool {
	return g.Doc != nil && slices.ContainsFunc(g.Doc.List, func(c *ast.Comment) bool { return strings.HasPrefix(c.Text, "//go:linkname ") })
}

// mutations are the places where a file changes one of the named globals. A
// local of the same name is told apart by the parser, which resolves names
// within a file.
func mutations(s *source, names map[string]bool) []token.Position {
	var at []token.Position
	top := make(map[any]bool)
	for _, d := range s.ast.Decls {
		if g, ok := d.(*ast.GenDecl); ok {
			for _, spec := range g.Specs {
				top[spec] = true
			}
		}
	}
	check := func(e ast.Expr) {
		// A name the parser did not resolve is declared in another file: a global.
		if id := root(e); id != nil && names[id.Name] && (id.Obj == nil || top[id.Obj.Decl]) {
			at = append(at, s.pos.Position(e.Pos()))
		}
	}
	ast.Inspect(s.ast, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.AssignStmt:
			if n.Tok != token.DEFINE {
				for _, l := range n.Lhs {
					check(l)
				}
			}
		case *ast.IncDecStmt:
			check(n.X)
		case *ast.UnaryExpr:
			// The address of a table's entry is how a loop avoids a copy.
			if _, whole := n.X.(*ast.Ident); whole && n.Op == token.AND {
				check(n.X)
			}
		case *ast.CallExpr:
			if f, ok := n.Fun.(*ast.Ident); ok && (f.Name == "delete" || f.Name == "clear") && len(n.Args) > 0 {
				check(n.Args[0])
			}
		}
		return true
	})
	return at
}

// root is the variable that x.f[i].g belongs to.
func root(e ast.Expr) *ast.Ident {
	for {
		switch x := e.(type) {
		case *ast.Ident:
			return x
		case *ast.SelectorExpr:
			e = x.X
		case *ast.IndexExpr:
			e = x.X
		case *ast.StarExpr:
			e = x.X
		case *ast.ParenExpr:
			e = x.X
		default:
			return nil
		}
	}
}

// Every exported name of a package is documented; those of test helpers may
// share a comment.
func TestExportedNamesAreDocumented(t *testing.T) {
	for _, s := range load(t) {
		if s.test || s.generated() || s.dir == "" || strings.HasSuffix(s.dir, "test") {
			continue
		}
		for _, d := range s.ast.Decls {
			for _, name := range undocumented(d) {
				t.Errorf("%s: %s is exported and not documented", s.pos.Position(d.Pos()), name)
			}
		}
	}
}

func undocumented(d ast.Decl) []string {
	switch d := d.(type) {
	case *ast.FuncDecl:
		if d.Doc == nil && d.Name.IsExported() && !saysItself(d) && (d.Recv == nil || ast.IsExported(receiver(d))) {
			return []string{d.Name.Name}
		}
	case *ast.GenDecl:
		var out []string
		for _, spec := range d.Specs {
			switch spec := spec.(type) {
			case *ast.TypeSpec:
				if d.Doc == nil && spec.Doc == nil && spec.Name.IsExported() {
					out = append(out, spec.Name.Name)
				}
			case *ast.ValueSpec:
				if d.Doc == nil && spec.Doc == nil && spec.Comment == nil && spec.Names[0].IsExported() {
					out = append(out, spec.Names[0].Name)
				}
			}
		}
		return out
	}
	return nil
}

// saysItself reports whether a method's name and type are its whole contract.
func saysItself(d *ast.FuncDecl) bool {
	return d.Recv != nil && (d.Name.Name == "Error" || d.Name.Name == "Unwrap")
}

func receiver(d *ast.FuncDecl) string {
	t := d.Recv.List[0].Type
	for {
		switch x := t.(type) {
		case *ast.StarExpr:
			t = x.X
		case *ast.IndexExpr:
			t = x.X
		case *ast.Ident:
			return x.Name
		default:
			return ""
		}
	}
}
