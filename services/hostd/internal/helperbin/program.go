package helperbin

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
)

// Program is a helper program of hostd, or of a template.
type Program struct {
	Name   string   // file name
	Main   string   // directory of the main package, relative to the source root
	Module bool     // Main is a module of its own
	Inputs []string // source files and directories, relative to the source root
	Embeds *Embedded
}

// Embedded is a program that is part of another one.
type Embedded struct {
	Main string // directory of the main package, relative to the source root
	File string // the file that it takes the place of, compressed
}

// Runsc returns gVisor's runsc, for the driver "gvisor". Its build takes minutes.
func Runsc() Program {
	return Program{Name: "millrace-runsc", Main: "runsc", Module: true, Inputs: []string{"runsc"}}
}

// Shim returns the small shim. Its build takes seconds.
func Shim() Program {
	return Program{
		Name: "millrace-shim", Main: "services/hostd/cmd/millrace-shim",
		Inputs: []string{"go.mod", "go.sum", "events", "schema", "services/hostd"},
		Embeds: &Embedded{Main: "services/hostd/cmd/millrace-agent", File: "services/hostd/internal/agentexec/agent.gz"},
	}
}

// MCPGateway returns the mcp-gateway of templates. Its build takes seconds.
func MCPGateway() Program {
	return Program{Name: "millrace-mcp-gateway", Main: "mcpgateway", Module: true, Inputs: []string{"mcpgateway"}}
}

// ErrNoSource reports that a program does not exist and cannot be built here.
var ErrNoSource = errors.New("the source of this program is not on this machine")

func (p Program) siblingPath() (string, error) {
	exe, err := os.Executable()
	return filepath.Join(filepath.Dir(exe), p.Name), err
}

// Find returns the path of the program. Its error names the paths that were searched.
func (p Program) Find() (string, error) {
	beside, err := p.siblingPath()
	if err != nil {
		return "", err
	}
	if executable(beside) {
		return beside, nil
	}
	cached, err := p.cached()
	if err == nil && executable(cached) {
		return cached, nil
	}
	if err != nil {
		return "", fmt.Errorf("%s does not exist, and %w", beside, err)
	}
	return "", fmt.Errorf("%s does not exist and has not been built from source yet: %w", beside, fs.ErrNotExist)
}

// Check returns nil if the program exists or can be built here, which needs its source
// and the Go toolchain.
func (p Program) Check() error {
	if _, err := p.Find(); err == nil || !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if _, err := exec.LookPath("go"); err != nil {
		return fmt.Errorf("%s cannot be built without the Go toolchain: %w", p.Name, err)
	}
	return nil
}

func executable(path string) bool {
	fi, err := os.Stat(path)
	return err == nil && fi.Mode().IsRegular() && fi.Mode()&0o111 != 0
}

// cached returns the path where Build puts the program.
func (p Program) cached() (string, error) {
	root, err := source()
	if err != nil {
		return "", err
	}
	sum, err := p.fingerprint(root)
	if err != nil {
		return "", err
	}
	dir, err := cacheDir()
	return filepath.Join(dir, p.Name+"-"+sum), err
}

func cacheDir() (string, error) {
	dir, err := os.UserCacheDir()
	if err != nil { // a service without a home directory
		if os.Geteuid() != 0 {
			return "", err
		}
		dir = "/var/cache"
	}
	return filepath.Join(dir, "millrace", "bin"), nil
}

// source returns the root of the source that this program was built from.
func source() (string, error) {
	_, file, _, ok := runtime.Caller(0)
	if !ok || !filepath.IsAbs(file) { // -trimpath
		return "", ErrNoSource
	}
	const here = "services/hostd/internal/helperbin/program.go"
	root, found := strings.CutSuffix(filepath.ToSlash(file), "/"+here)
	if !found {
		return "", ErrNoSource
	}
	mod, err := os.ReadFile(filepath.Join(root, "go.mod"))
	if err != nil || !strings.HasPrefix(string(mod), "module github.com/millrace/millrace\n") {
		return "", ErrNoSource
	}
	return root, nil
}

// fingerprint returns a hash of everything that determines the built program.
func (p Program) fingerprint(root string) (string, error) {
	sum := sha256.New()
	fmt.Fprintln(sum, runtime.Version(), runtime.GOOS, runtime.GOARCH, p.Main)
	for _, in := range p.Inputs {
		err := filepath.WalkDir(filepath.Join(root, in), func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || !isInput(d.Name()) {
				return err
			}
			f, err := os.Open(path)
			if err != nil {
				return err
			}
			defer f.Close()
			fmt.Fprintf(sum, "%s\n", strings.TrimPrefix(path, root))
			if _, err := io.Copy(sum, f); err != nil {
				return err
			}
			return nil
		})
		if err != nil {
			return "", err
		}
	}
	return hex.EncodeToString(sum.Sum(nil))[:16], nil
}

func isInput(name string) bool {
	return name == "go.mod" || name == "go.sum" || strings.HasSuffix(name, ".go") && !strings.HasSuffix(name, "_test.go")
}
