package ops

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

const (
	headTimeout  = 5 * time.Second
	checkTimeout = 2 * time.Second // of all checks of one probe
	minToken     = 16              // characters
	maxScrapes   = 4               // at the same time
)

// Listen listens for scrapes and probes at an address, HOST:PORT. Without a token the address
// must be a loopback address.
func Listen(ctx context.Context, address, token string) (net.Listener, error) {
	if token != "" && len(token) < minToken {
		return nil, fmt.Errorf("--metrics-token: %d characters are too few, at least %d are required", len(token), minToken)
	}
	ln, err := new(net.ListenConfig).Listen(ctx, "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("--metrics-listen: %w", err)
	}
	if addr, ok := ln.Addr().(*net.TCPAddr); token == "" && (!ok || !addr.IP.IsLoopback()) {
		ln.Close()
		return nil, fmt.Errorf("--metrics-listen: %s is not a loopback address, so --metrics-token is required", address)
	}
	return ln, nil
}

// Serve serves scrapes and probes until ctx ends, and closes the listener. If token is empty,
// /metrics requires none.
func (r *Role) Serve(ctx context.Context, ln net.Listener, token string) error {
	srv := &http.Server{Handler: r.handler(token), ReadHeaderTimeout: headTimeout, ReadTimeout: headTimeout}
	defer context.AfterFunc(ctx, func() { srv.Close() })()
	if err := srv.Serve(ln); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve metrics: %w", err)
	}
	return nil
}

func (r *Role) handler(token string) http.Handler {
	scrape := promhttp.HandlerFor(prometheus.Gatherers{r.Registry}, promhttp.HandlerOpts{
		MaxRequestsInFlight: maxScrapes, ErrorHandling: promhttp.ContinueOnError, DisableCompression: true,
	})
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", authenticated(scrape, token))
	mux.HandleFunc("GET /livez", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "ok") })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, req *http.Request) {
		ctx, cancel := context.WithTimeout(req.Context(), checkTimeout)
		defer cancel()
		if err := r.ready(ctx); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		fmt.Fprint(w, "ready")
	})
	return mux
}

// authenticated serves requests with the token, and all if it is empty.
func authenticated(next http.Handler, token string) http.Handler {
	if token == "" {
		return next
	}
	want := sha256.Sum256([]byte(token))
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		sent, ok := strings.CutPrefix(req.Header.Get("Authorization"), "Bearer ")
		got := sha256.Sum256([]byte(sent))
		if !ok || subtle.ConstantTimeCompare(got[:], want[:]) != 1 {
			w.Header().Set("WWW-Authenticate", "Bearer")
			http.Error(w, "the token of --metrics-token is required", http.StatusUnauthorized)
			return
		}
		next.ServeHTTP(w, req)
	})
}
