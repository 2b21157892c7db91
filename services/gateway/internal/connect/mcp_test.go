package connect

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/millrace/millrace/events/process"
)

func TestMCPConfigurationTravelsInTheEnvironment(t *testing.T) {
	for name, tt := range map[string]struct {
		spec process.Spec
		hide bool
	}{
		"the SDK's command":      {process.Spec{Cmd: "/bin/bash", Args: []string{"-l", "-c", `mcp-gateway --config '{"a":{"key":"canary"}}'`}, Env: map[string]string{"A": "1"}}, true},
		"without an environment": {process.Spec{Cmd: "/bin/sh", Args: []string{"-c", "mcp-gateway canary"}}, true},
		"another command":        {process.Spec{Cmd: "/bin/bash", Args: []string{"-l", "-c", "echo canary"}}, false},
		"no command":             {process.Spec{Cmd: "canary"}, false},
		"no shell":               {process.Spec{Cmd: "mcp-gateway", Args: []string{"mcp-gateway canary"}}, false},
	} {
		got := tt.spec
		hideMCP(&got)
		if hidden := !strings.Contains(strings.Join(got.Args, " ")+got.Cmd, "canary"); hidden != tt.hide {
			t.Errorf("%s: %q", name, got.Args)
		}
		showMCP(&got)
		if !slices.Equal(got.Args, tt.spec.Args) || !maps.Equal(got.Env, tt.spec.Env) {
			t.Errorf("%s: shown as %q, %v", name, got.Args, got.Env)
		}
	}
}
