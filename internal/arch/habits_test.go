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
				t.Errorf("%s has an init: initialize where it is needed", s.pos.Position(f.Pos()))
			}
		}
	}
}

// TestNoSleepInTests rejects time.Sleep in tests: a sleep is either too short or too long.
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

// TestNoMutableGlobals rejects code that assigns to a package's variable, to an element or
// a field of one, or takes its address: these variables are errors and tables.
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
					globals[s.dir][name.Name] = name.Name != "_"
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

// linked reports whether a variable belongs to another module.
func linked(g *ast.GenDecl) bool {
	return g.Doc != nil && slices.ContainsFunc(g.Doc.List, func(c *ast.Comment) bool { return strings.HasPrefix(c.Text, "//go:linkname ") })
}

// mutations returns the positions at which a file changes one of the named globals. The
// parser resolves names within a file, so that locals of the same name do not count.
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
			// The address of a table's entry is allowed: loops use it to avoid a copy.
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

// root returns the variable that x.f[i].g belongs to.
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

// TestExportedNamesAreDocumented requires a doc comment for every exported name, except in
// packages of test helpers.
func TestExportedNamesAreDocumented(t *testing.T) {
	for _, s := range load(t) {
		if s.test || s.generated() || s.dir == "" || strings.HasSuffix(s.dir, "test") {
			continue
		}
		for _, d := range s.ast.Decls {
			for _, name := range undocumented(d) {
				t.Errorf("%s: exported %s has no doc comment", s.pos.Position(d.Pos()), name)
			}
		}
	}
}

// undocumented returns the exported names of a declaration that have no doc comment.
func undocumented(d ast.Decl) []string {
	switch d := d.(type) {
	case *ast.FuncDecl:
		if d.Doc == nil && d.Name.IsExported() && !isStandard(d) && (d.Recv == nil || ast.IsExported(receiver(d))) {
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

// isStandard reports whether the standard library defines the contract of a method.
func isStandard(d *ast.FuncDecl) bool {
	return d.Recv != nil && (d.Name.Name == "Error" || d.Name.Name == "Unwrap")
}

// receiver returns the name of a method's receiver type.
func receiver(d *ast.FuncDecl) string {
	t := d.Recv.List[0].Type
	for {
		switch x := t.(type) {
		case *ast.StarExpr:
			t = x.X
		case *ast.IndexExpr:
			t = x.X
		case *ast.IndexListExpr:
			t = x.X
		case *ast.Ident:
			return x.Name
		default:
			return ""
		}
	}
}
