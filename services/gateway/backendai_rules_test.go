package gateway_test

import (
	"fmt"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// Each rule of Backend.AI's protocol is named in the comment or the body of a test.
func TestBackendAIRulesHaveTests(t *testing.T) {
	rule := regexp.MustCompile(`B-[0-9]{3}`)
	found := map[string]bool{}
	for _, root := range []string{".", "../../e2e"} {
		err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || !strings.HasSuffix(path, "_test.go") || strings.HasSuffix(path, "rules_test.go") {
				return err
			}
			file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ParseComments)
			if err != nil {
				return err
			}
			for _, c := range file.Comments {
				for _, r := range rule.FindAllString(c.Text(), -1) {
					found[r] = true
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	for n := 1; n <= 36; n++ {
		if r := fmt.Sprintf("B-%03d", n); !found[r] {
			t.Errorf("no test names %s", r)
		}
	}
}
