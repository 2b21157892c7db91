package e2e_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/millrace/millrace/e2e/rig"
)

// TestMCP creates sandboxes with MCP servers by the released e2b package and uses them by
// the released MCP client, unmodified.
func TestMCP(t *testing.T) {
	t.Parallel()
	if rig.Driver(t) == "direct" || os.Geteuid() != 0 {
		t.Skip("the driver does not support templates, or has no root user")
	}
	if _, err := exec.LookPath("npm"); err != nil {
		t.Skip("npm is not installed")
	}
	program := filepath.Join(t.TempDir(), "mcp-gateway")
	build := exec.CommandContext(t.Context(), "go", "build", "-trimpath", "-o", program, ".")
	build.Dir, build.Env = filepath.Join(rig.Root(), "mcpgateway"), append(os.Environ(), "CGO_ENABLED=0", "GOWORK=off")
	install := exec.CommandContext(t.Context(), "npm", "ci")
	install.Dir = filepath.Join(rig.SDK(), "mcp")
	for _, cmd := range []*exec.Cmd{build, install} {
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%s: %v\n%s", cmd, err, out)
		}
	}
	runNode(t, api(t), filepath.Join("mcp", "mcp.mjs"), program)
}
