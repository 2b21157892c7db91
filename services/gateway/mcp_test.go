package gateway_test

import (
	"fmt"
	"strings"
	"testing"
)

// A sandbox's MCP servers are checked and not stored: they may contain secrets.
func TestCreateWithMCP(t *testing.T) {
	f := newFixture(t)
	servers := func(n int) string {
		var all []string
		for i := range n {
			all = append(all, fmt.Sprintf(`"github/a/b%d":{"runCmd":"x"}`, i))
		}
		return "{" + strings.Join(all, ",") + "}"
	}
	for _, tt := range []struct {
		mcp  string
		code int
	}{
		{`{"github/a/b":{"runCmd":"x","envs":{"KEY":"hush"}},"exa":{"apiKey":"hush"}}`, 201},
		{`{"exa":{}}`, 201}, {`{}`, 201}, {`null`, 201}, {servers(64), 201},
		{servers(65), 400}, {`"hush"`, 400}, {`["hush"]`, 400}, {`{"exa":"hush"}`, 400}, {`{"exa":null}`, 400}, {`{"exa":["hush"]}`, 400},
		{`{"exa":{"apiKey":"` + strings.Repeat("hush", 1<<14) + `"}}`, 400},
	} {
		for _, path := range []string{"/sandboxes", "/v2/sandboxes"} {
			a := f.do("POST", path, `{"templateID":"base","mcp":`+tt.mcp+`}`)
			if a.code != tt.code || strings.Contains(a.body, "hush") {
				t.Errorf("%s with %.60s: %d %s; want %d", path, tt.mcp, a.code, a.body, tt.code)
			}
		}
	}
	if a := f.do("GET", "/v2/sandboxes", ""); a.code != 200 || strings.Contains(a.body, "hush") {
		t.Errorf("listed: %d %s", a.code, a.body)
	}
}
