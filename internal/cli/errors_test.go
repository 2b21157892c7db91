package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// What the standard library says of a broken connection is not shown to users.
func TestErrorsAreSentences(t *testing.T) {
	var v struct{ N int }
	for want, err := range map[string]error{
		"the gateway closed the connection":                        fmt.Errorf("read: %w", io.ErrUnexpectedEOF),
		"the gateway did not answer in time":                       context.DeadlineExceeded,
		"interrupted":                                              context.Canceled,
		"the gateway sent something that is not the expected JSON": json.Unmarshal([]byte(`{"n":"x"}`), &v),
		errDeaf.Error():                                            errDeaf,
	} {
		if got := inWords(err).Error(); got != want {
			t.Errorf("inWords(%v) = %q; want %q", err, got, want)
		}
	}
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
