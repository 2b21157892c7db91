package deliver

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/millrace/millrace/events"
	"github.com/millrace/millrace/events/eventstest"
	"github.com/millrace/millrace/events/process"
	"github.com/millrace/millrace/events/seal/sealtest"
	"github.com/millrace/millrace/events/webhook"
)

// backlog stores processes that ended, of 100 sandboxes.
func backlog(b *testing.B, log *events.Log, n int) {
	b.Helper()
	g, ctx := errgroup.WithContext(b.Context())
	g.SetLimit(256)
	for i := range n {
		g.Go(func() error {
			code := int32(0)
			s := process.Summary{
				ID: process.ID(fmt.Sprintf("01jd%022d-i%d", i, i%100)), Tenant: "a", Host: "h", PID: 7, Last: 5,
				Spec:    process.Spec{Cmd: "/bin/bash", Args: []string{"-l", "-c", "make test"}},
				Started: time.Unix(100, 0), Ended: time.Unix(102, 0), Exit: &process.Exit{Code: &code, Cause: process.CauseExited},
			}
			_, err := log.PutSummary(ctx, &s, 0)
			return err
		})
	}
	if err := g.Wait(); err != nil {
		b.Fatal(err)
	}
}

// BenchmarkBacklog delivers a backlog of events of processes to one receiver, which only counts them.
// BATCH=0 sends one event per request.
func BenchmarkBacklog(b *testing.B) {
	const processes = 20_000
	log := eventstest.Open(b, eventstest.Start(b))
	backlog(b, log, processes)
	view, ring := eventstest.View(b, log), eventstest.Ring(b, log)
	for _, batch := range []int{0, 100, 1000} {
		b.Run(fmt.Sprintf("batch=%d", batch), func(b *testing.B) {
			for range b.N {
				var count atomic.Int64
				done := make(chan struct{})
				want := int64(2 * processes)
				if batch == 0 {
					want /= 10 // it is slower
				}
				srv := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
					raw, _ := io.ReadAll(r.Body)
					if n := int64(bytes.Count(raw, []byte(`"event_category"`))); count.Add(n) >= want && count.Load()-n < want {
						close(done)
					}
				}))
				h := webhook.Webhook{
					ID: webhook.NewID(), Tenant: "a", Name: "n", URL: srv.URL, Enabled: true, Format: webhook.FormatStandard, Batch: batch,
					Types: webhook.Types(), Created: time.Now(),
				}
				h.Secret = sealtest.Seal(b, ring, h.Place(), secret)
				rev, err := log.PutWebhook(b.Context(), &h)
				if err != nil {
					b.Fatal(err)
				}
				if err := view.Sync(b.Context()); err != nil {
					b.Fatal(err)
				}
				ctx, cancel := context.WithCancel(b.Context())
				ended := make(chan error)
				began := time.Now()
				go func() {
					ended <- Run(ctx, Config{Log: log, View: view, Allow: []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")}})
				}()
				<-done
				b.ReportMetric(float64(want)/time.Since(began).Seconds(), "events/s")
				cancel()
				if err := <-ended; err != nil {
					b.Fatal(err)
				}
				h.Rev, h.Enabled, h.Removed = rev, false, true
				if _, err := log.PutWebhook(b.Context(), &h); err != nil {
					b.Fatal(err)
				}
				srv.Close()
			}
		})
	}
}
