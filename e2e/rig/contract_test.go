package rig_test

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/millrace/millrace/e2e/rig"
)

// canned is a server of one response.
type canned struct {
	status     int
	mime, body string
}

func (c canned) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.Body != nil {
		if _, err := io.Copy(io.Discard, req.Body); err != nil {
			return nil, err
		}
	}
	return &http.Response{
		Status: http.StatusText(c.status), StatusCode: c.status, Header: http.Header{"Content-Type": {c.mime}},
		Body: io.NopCloser(strings.NewReader(c.body)), Request: req,
	}, nil
}

func TestContract(t *testing.T) {
	const (
		mime  = "application/json; charset=utf-8"
		bytes = "application/octet-stream"
		usage = `{"total_size_mib":0.5,"file_count":1}`
	)
	tests := []struct {
		name, method, path, sent string
		got                      canned
		ok                       bool
	}{
		{"a response", "GET", "/v1/workspaces/a/b/usage", "", canned{200, mime, usage}, true},
		{"a missing field", "GET", "/v1/workspaces/a/b/usage", "", canned{200, mime, `{"file_count":1}`}, false},
		{"a wrong type", "GET", "/v1/workspaces/a/b/usage", "", canned{200, mime, `{"total_size_mib":"0.5","file_count":1}`}, false},
		{"an unknown field", "DELETE", "/v1/workspaces/a/b", "", canned{200, mime, `{"status":"deleted","x":1}`}, false},
		{"another content type", "GET", "/v1/workspaces/a/b/usage", "", canned{200, "text/html", usage}, false},
		{"an error", "GET", "/v1/workspaces/a/b/usage", "", canned{400, mime, `{"error":"invalid","message":"m"}`}, true},
		{"an error in another form", "GET", "/v1/workspaces/a/b/usage", "", canned{400, mime, `{"code":400,"message":"m"}`}, false},
		{"a request that was accepted and is not allowed", "POST", "/v1/sandboxes/sbx_00000000/exec", `{"command":7}`, canned{200, mime, `{"output":""}`}, false},
		{"a request that was rejected", "POST", "/v1/sandboxes/sbx_00000000/exec", `{"command":7}`, canned{400, mime, `{"error":"invalid","message":"m"}`}, true},
		{"a request", "POST", "/v1/sandboxes/sbx_00000000/exec", `{"command":"x"}`, canned{200, mime, `{"output":"","exit_code":0}`}, true},
		{"a path with slashes", "DELETE", "/v1/workspaces/a/b/files/c/d%20e", "", canned{200, mime, `{"status":"deleted"}`}, true},
		{"a path with slashes, a wrong response", "DELETE", "/v1/workspaces/a/b/files/c/d", "", canned{200, mime, `{}`}, false},
		{"bytes", "GET", "/v1/sandboxes/sbx_00000000/files?path=/a", "", canned{200, bytes, "\xff"}, true},
		{"another family", "GET", "/sandboxes", "", canned{200, "x/y", "z"}, true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c, err := rig.NewContract(tt.got, "e2a")
			if err != nil {
				t.Fatal(err)
			}
			req, err := http.NewRequestWithContext(t.Context(), tt.method, "http://x"+tt.path, strings.NewReader(tt.sent))
			if err != nil {
				t.Fatal(err)
			}
			req.Header.Set("Content-Type", "application/json")
			resp, err := c.RoundTrip(req)
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			_, err = io.ReadAll(resp.Body)
			if _, _, all := c.Check(); (err == nil) != tt.ok || (all == nil) != tt.ok {
				t.Errorf("%v, %v; want ok %v", err, all, tt.ok)
			}
		})
	}
}
