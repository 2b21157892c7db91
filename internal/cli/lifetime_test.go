package cli

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

func TestCommandTimeoutsAreRoundedUp(t *testing.T) {
	g := newFakeGateway(t, end(`{"type":"end","exit_code":0,"signal":null,"cause":"exited"}`)...)
	if got := g.verb(nil, "run", "-n", "--timeout", "500us", "x"); got.code != 0 || fmt.Sprint(g.Commands[0]["timeout_ms"]) != "1" {
		t.Errorf("exit %d %s, command %v", got.code, got.say, g.Commands)
	}
}

// A default timeout is reduced to the gateway's maximum; one that the user named fails.
func TestDefaultTimeoutIsReducedToTheMaximum(t *testing.T) {
	tests := []struct {
		args string
		most int64
		sent []int64
		ok   bool
	}{
		{"sandbox create", 0, []int64{3600}, true},
		{"sandbox create", 1800, []int64{3600, 1800}, true},
		{"sandbox create -o json", 1800, []int64{3600, 1800}, true},
		{"sandbox create --timeout 1h", 1800, []int64{3600}, false},
		{"sandbox create --timeout 500ms", 1800, []int64{1}, true},
		{"sandbox resume i1", 1800, []int64{3600, 1800}, true},
		{"sandbox resume --timeout 2h i1", 1800, []int64{7200}, false},
		{"sandbox fork i1", 1800, []int64{3600, 1800}, true},
		{"sandbox fork --timeout 2h i1", 1800, []int64{7200}, false},
		{"run -n x", 60, []int64{600, 60}, true},
	}
	for _, tt := range tests {
		t.Run(tt.args, func(t *testing.T) {
			g := newFakeGateway(t, end(`{"type":"end","exit_code":0,"signal":null,"cause":"exited"}`)...)
			g.Most = tt.most
			got := g.verb(nil, strings.Fields(tt.args)...)
			if (got.code == 0) != tt.ok || !slices.Equal(g.Timeouts, tt.sent) {
				t.Errorf("exit %d %s %s, sent %v; want %v", got.code, got.say, got.errOut, g.Timeouts, tt.sent)
			}
			if !tt.ok && !strings.Contains(got.say+got.errOut, "timeout cannot be greater than 1800 seconds") {
				t.Errorf("message %q, stderr %q", got.say, got.errOut)
			}
		})
	}
}
