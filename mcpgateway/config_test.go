package main

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

func TestConfigurations(t *testing.T) {
	many := make([]string, maxServers+1)
	for i := range many {
		many[i] = `"github/a/b` + strings.Repeat("x", i) + `":{"runCmd":"r"}`
	}
	for _, tt := range []struct {
		name, config string
		want         string // part of the error; empty: no error
	}{
		{"none", `{}`, ""},
		{"one", `{"github/a/b":{"runCmd":"r","installCmd":"i","envs":{"K":"v"}}}`, ""},
		{"not an object", `[]`, "not an object"},
		{"of the catalog", `{"exa":{"apiKey":"k"}}`, "catalog"},
		{"out of the directory", `{"github/../b":{"runCmd":"r"}}`, "catalog"},
		{"an option", `{"github/-a/..":{"runCmd":"r"}}`, "catalog"},
		{"nothing to run", `{"github/a/b":{}}`, "runCmd is required"},
		{"an unknown field", `{"github/a/b":{"runCmd":"r","image":"x"}}`, "unknown field"},
		{"a wrong type", `{"github/a/b":{"runCmd":1}}`, "github/a/b"},
		{"too many", "{" + strings.Join(many, ",") + "}", "more than 64"},
	} {
		_, err := parse([]byte(tt.config))
		if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v; want %q", tt.name, err, tt.want)
		}
	}
	if err := run([]string{"pull", "exa"}); !errors.Is(err, errCatalog) {
		t.Errorf("pull: %v", err)
	}
}

func TestTokenIsRequired(t *testing.T) {
	h := handler(mcp.NewServer(me, nil), "right")
	for given, want := range map[string]int{
		"": http.StatusUnauthorized, "Bearer": http.StatusUnauthorized, "Bearer wrong": http.StatusUnauthorized,
		"Basic right": http.StatusUnauthorized, "right": http.StatusUnauthorized, "Bearer right": http.StatusOK, "bearer right": http.StatusOK,
	} {
		r := httptest.NewRequest(http.MethodPost, "/mcp", strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}`))
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Accept", "application/json, text/event-stream")
		if given != "" {
			r.Header.Set("Authorization", given)
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if w.Code != want {
			t.Errorf("%q: %d %s; want %d", given, w.Code, w.Body, want)
		}
	}
}

func TestNamesAreUnique(t *testing.T) {
	taken := map[string]string{}
	for _, tt := range [][3]string{{"github/a/one", "echo", "echo"}, {"github/a/t.wo", "echo", "t_wo_echo"}, {"github/b/t.wo", "echo", "t_wo_t_wo_echo"}, {"github/a/one", "add", "add"}} {
		if got := uniqueName(taken, tt[0], tt[1]); got != tt[2] {
			t.Errorf("free(%s, %s) = %s, want %s", tt[0], tt[1], got, tt[2])
		}
	}
}
