package systems

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/tools/go/packages"
)

// TestOtherSystemsTypeCheck type-checks the product from source for other systems. It finds
// the errors of a build for them in a tenth of the time, because nothing is compiled.
func TestOtherSystemsTypeCheck(t *testing.T) {
	if testing.Short() {
		t.Skip("type-checking all dependencies takes 20 s for each system")
	}
	for _, system := range []string{"freebsd/amd64", "linux/arm64"} {
		t.Run(strings.ReplaceAll(system, "/", "-"), func(t *testing.T) {
			for _, err := range typeErrors(t, system) {
				t.Error(err)
			}
		})
	}
}

// typeErrors returns the type errors of the main module on a system.
func typeErrors(t *testing.T, system string) []packages.Error {
	t.Helper()
	goos, goarch, _ := strings.Cut(system, "/")
	all, err := packages.Load(&packages.Config{
		Context: t.Context(),
		Mode:    packages.NeedName | packages.NeedFiles | packages.NeedImports | packages.NeedDeps | packages.NeedTypes | packages.NeedSyntax | packages.NeedTypesSizes | packages.NeedModule,
		Dir:     filepath.Join("..", "..", ".."),
		Env:     append(os.Environ(), "GOOS="+goos, "GOARCH="+goarch, "CGO_ENABLED=0"),
	}, "./...")
	if err != nil {
		t.Fatal(err)
	}
	if len(all) < 20 {
		t.Fatalf("%d packages found: is this the module's root?", len(all))
	}
	var errs []packages.Error
	for _, p := range all {
		errs = append(errs, p.Errors...)
	}
	return errs
}
