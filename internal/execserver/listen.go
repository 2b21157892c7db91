package execserver

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"time"
)

const headTimeout = 10 * time.Second

// Serve serves clients at an address without credentials, until ctx ends: WebSocket at / and
// the probe /readyz. Pages of web browsers are rejected.
func Serve(ctx context.Context, ln net.Listener, e Endpoint) error {
	target, err := url.Parse(e.Gateway)
	if err != nil {
		return err
	}
	proxy := &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) {
		r.SetURL(target)
		r.Out.URL.Path, r.Out.URL.RawQuery = e.Path, e.Query
		r.Out.Header.Set("Authorization", "Bearer "+e.Key)
	}}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /readyz", func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.Header.Get("Origin") != "":
			http.Error(w, "requests from pages are not allowed", http.StatusForbidden)
		case r.Header.Get("Upgrade") == "":
			http.Error(w, "this path serves WebSocket only", http.StatusBadRequest)
		default:
			proxy.ServeHTTP(w, r)
		}
	})
	srv := &http.Server{Handler: mux, ReadHeaderTimeout: headTimeout}
	defer context.AfterFunc(ctx, func() { srv.Close() })()
	if err := srv.Serve(ln); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}
