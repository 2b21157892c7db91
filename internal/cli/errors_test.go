package cli

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/millrace/millrace/internal/cli/output"
)

// Users see sentences, not the standard library's errors for broken connections.
func TestBrokenResponsesAreSentences(t *testing.T) {
	for name, serve := range map[string]http.HandlerFunc{
		"closed": func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
		"cut": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "9")
			io.WriteString(w, "[")
		},
		"not JSON": func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "<html>") },
	} {
		srv := httptest.NewServer(serve)
		env := map[string]string{"MILLRACE_URL": srv.URL, "MILLRACE_API_KEY": "e2b_00"}
		got := verb(t, env, nil, "ps")
		if got.code != 1 || !strings.Contains(got.say, "the gateway ") || strings.Contains(got.say, "EOF") || strings.Contains(got.say, "invalid character") {
			t.Errorf("%s: exit %d %q", name, got.code, got.say)
		}
		srv.Close()
	}
}

func TestWrongNumberOfArgumentsShowsUsage(t *testing.T) {
	for args, want := range map[string]string{
		"cp a":       "cp cannot take 1 argument: usage: cp SOURCE DESTINATION [flags]",
		"logs a b":   "logs cannot take 2 arguments: usage: logs [PROCESS] [flags]",
		"sandbox rm": "rm requires arguments: usage: sandbox rm SANDBOX... [flags]",
		"run":        "run requires arguments: usage: run [flags] [--] COMMAND [ARG...]",
	} {
		got := verb(t, nil, nil, strings.Fields(args)...)
		if code := map[bool]int{true: output.ExitMillrace, false: 1}[args == "run"]; got.say != want || got.code != code {
			t.Errorf("%s: exit %d %q; want %q", args, got.code, got.say, want)
		}
	}
}
