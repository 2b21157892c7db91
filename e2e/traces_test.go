package e2e_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/millrace/millrace/e2e/rig"
)

const (
	traceID     = "0af7651916cd43dd8448eb211c80319c"
	parentSpan  = "b7ad6b7169203331"
	traceParent = "00-" + traceID + "-" + parentSpan + "-01"
)

// processInfo is a process as GET /v1/processes/{id} shows it.
type processInfo struct {
	State    string `json:"state"`
	TraceID  string `json:"trace_id"`
	ExitCode *int   `json:"exit_code"`
}

// printTrace prints the context of the trace that a process has.
const printTrace = `echo "$TRACEPARENT $TRACESTATE"`

// A start's traceparent is in the record and in the environment, without any setting; one that is not
// valid is ignored.
func TestTraceContextIsPassedOn(t *testing.T) {
	a := api(t)
	box := a.Create(t)
	tests := []struct {
		name, parent, state string
		env                 map[string]string
		want, id            string
	}{
		{"none", "", "a=b", nil, " \n", ""},
		{"valid", traceParent, "", nil, traceParent + " \n", traceID},
		{"with a state", traceParent, "rojo=1,congo=2", nil, traceParent + " rojo=1,congo=2\n", traceID},
		{"not valid", strings.ToUpper(traceParent), "a=b", nil, " \n", ""},
		{"the start's own", traceParent, "a=b", map[string]string{"TRACEPARENT": "x"}, "x \n", traceID},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var headers []string
			for name, value := range map[string]string{"traceparent": tt.parent, "tracestate": tt.state} {
				if value != "" {
					headers = append(headers, name, value)
				}
			}
			start := map[string]any{"process": map[string]any{"cmd": "/bin/sh", "args": []string{"-c", printTrace}, "envs": tt.env}, "stdin": false}
			run := a.StartSpec(t, box.ID, start, headers...).All(t)
			if run.Stdout() != tt.want {
				t.Errorf("Start: the process has %q, want %q", run.Stdout(), tt.want)
			}
			if got := infoOf(t, a, run.Process); got.TraceID != tt.id || got.State != "ended" {
				t.Errorf("Start: the process is shown as %+v, want the trace %q", got, tt.id)
			}
			body := map[string]any{"cmd": "/bin/sh", "args": []string{"-c", printTrace}, "env": tt.env}
			out := a.Want(t, http.StatusOK, http.MethodPost, "/commands?sandbox="+box.ID, body, headers...)
			if want := strings.TrimSuffix(tt.want, "\n"); !strings.Contains(string(out.Body), `"data":"`+want) {
				t.Errorf("POST /commands: %s, want %q", out.Body, want)
			}
		})
	}
}

func infoOf(t testing.TB, a *rig.API, id string) (p processInfo) {
	t.Helper()
	a.Want(t, http.StatusOK, http.MethodGet, "/v1/processes/"+id, nil).Decode(t, &p)
	return p
}
