package app

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/millrace/millrace/internal/cli/output"
)

func TestUnknownSubcommandsFailWithUsage(t *testing.T) {
	for args, want := range map[string]string{
		"sandbox lst":    `unknown command "lst" for "millrace sandbox": did you mean ls?`,
		"key nothing":    `unknown command "nothing" for "millrace key"`,
		"template impor": "did you mean import?",
		"sandboxx":       "unknown command",
	} {
		_, _, err := root(t.Context(), nil, strings.Fields(args)...)
		code, message := output.ExitCode(err)
		if code == 0 || !strings.Contains(message, want) {
			t.Errorf("millrace %s: exit %d, %s; want %s", args, code, message, want)
		}
		if strings.Contains(args, " ") && !strings.Contains(message, "Usage:") {
			t.Errorf("millrace %s: no usage in %s", args, message)
		}
	}
	if out, _, err := root(t.Context(), nil, "sandbox"); err != nil || !strings.Contains(out, "Available Commands:") {
		t.Errorf("millrace sandbox: %v\n%s", err, out)
	}
}

func TestInvalidFlagValuesAreExplained(t *testing.T) {
	tests := []struct {
		args string
		env  map[string]string
		want string
	}{
		{"up --tcg=perhaps", nil, `--tcg "perhaps" must be true or false`},
		{"gateway --drain-timeout soon", nil, `--drain-timeout "soon" must be a duration such as 90s, 15m or 2h`},
		{"up", map[string]string{"MILLRACE_CAPACITY": "many"}, `MILLRACE_CAPACITY "many" must be a whole number`},
		{"run --timeout never true", nil, `--timeout "never" must be a duration`},
		{"gateway", map[string]string{"MILLRACE_API_KEY": "secret"}, "the API key must be e2b_ and at least 32"},
		{"up --driver nodriver", nil, `driver "nodriver" does not exist; the drivers are: gvisor, namespace,`},
	}
	for _, tt := range tests {
		ctx, cancel := context.WithCancel(t.Context())
		_, _, err := root(ctx, tt.env, strings.Fields(tt.args)...)
		cancel()
		if err == nil || !strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), "strconv") {
			t.Errorf("millrace %s %v: %v, want %s", tt.args, tt.env, err, tt.want)
		}
	}
}

func TestVersionIsPrinted(t *testing.T) {
	if out, _, err := root(t.Context(), nil, "version"); err != nil || !strings.HasPrefix(out, "millrace test (go1.") {
		t.Errorf("millrace version: %q, %v", out, err)
	}
	if out, _, err := root(t.Context(), nil, "version", "-o", "json"); err != nil || !strings.Contains(out, `"version": "test"`) {
		t.Errorf("millrace version -o json: %q, %v", out, err)
	}
}

func TestBannerNamesTheDriverAndTheNetwork(t *testing.T) {
	tests := []struct {
		name string
		b    banner
		want []string
	}{
		{"while gVisor is built", banner{drivers: []string{"namespace"}, isolations: []string{"process"}, pending: "gvisor"},
			[]string{"driver   namespace (isolation: process); gvisor is being built", "sandboxes have none; --egress internet"}},
		{"with gVisor", banner{drivers: []string{"gvisor", "namespace"}, isolations: []string{"kernel", "process"}, pending: "gvisor", egress: true},
			[]string{"driver   gvisor (isolation: kernel)\n", "may reach public addresses"}},
		{"a release without gVisor", banner{drivers: []string{"namespace"}, isolations: []string{"process"}, pending: "gvisor", pendingErr: errors.New("no source")},
			[]string{"WARNING: gvisor is not available: no source"}},
		{"limits that are not enforced", banner{drivers: []string{"namespace", "direct"}, enforced: []string{"pids disk", "cpu memory"}}, []string{"limits   not enforced here: cpu, memory; "}},
		{"all limits", banner{drivers: []string{"namespace"}, enforced: []string{"cpu memory disk pids"}}, []string{"limits   cpu, memory, disk and pids are enforced\n"}},
		{"named drivers only", banner{drivers: []string{"direct"}, isolations: []string{"none"}, version: "v1"}, []string{"driver   direct (isolation: none)\n", "version v1", "SIGTERM", "docs "}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			for _, want := range tt.want {
				if got := tt.b.text(); !strings.Contains(got, want) {
					t.Errorf("banner without %q:\n%s", want, got)
				}
			}
		})
	}
}
