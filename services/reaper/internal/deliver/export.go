package deliver

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"time"

	trace "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/millrace/millrace/events/catalog"
	"github.com/millrace/millrace/events/field"
	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/tracing"
	"github.com/millrace/millrace/events/webhook"
	"github.com/millrace/millrace/internal/waiting"
)

// maxSpans is the maximum number of processes in one request.
const maxSpans = 512

// idleTimeout is how long a connection to the receiver is kept without a request.
const idleTimeout = 90 * time.Second

// exporter exports the spans of processes that ended, in the order in which they did, as long as there are
// any and it holds the claim. A request that fails is repeated until the receiver accepts it, or says that
// it never will.
type exporter struct {
	claim
	to     *tracing.Settings
	client *http.Client
}

// newSpanClient returns a client for the receiver of spans, which the operator has chosen. It follows no
// redirect, which would receive the headers.
func newSpanClient(to *tracing.Settings) *http.Client {
	t := &http.Transport{
		Proxy: http.ProxyFromEnvironment, ForceAttemptHTTP2: true, TLSClientConfig: &tls.Config{RootCAs: to.Roots},
		IdleConnTimeout: idleTimeout,
	}
	return &http.Client{Transport: t, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
}

// startExport starts an export of spans if there are any, no other deliverer has the claim, and the last
// export began a tick ago: spans are sent together.
func (d *deliverer) startExport(ctx context.Context) {
	if d.spans == nil || time.Since(d.exported) < d.cfg.Tick {
		return
	}
	c := d.cfg.View.SpansCursor()
	claimed := c.Holder != "" && c.Holder != d.id && time.Since(c.Received) <= silence
	if claimed || c.Rev > 0 && len(d.cfg.View.EndedAfter(c.Processes.Rev(), 1)) == 0 || !d.markBusy(catalog.SpansID) {
		return
	}
	d.exported = time.Now()
	d.work.Go(func() {
		defer d.clearBusy(catalog.SpansID)
		x := exporter{claim: claim{d: d, tenant: catalog.SpansTenant, id: catalog.SpansID}, to: d.cfg.Traces, client: d.spans}
		x.run(ctx)
	})
}

// run claims the export, exports, and releases it. The first export of an installation begins with the
// processes that end from then on.
func (x *exporter) run(ctx context.Context) {
	c := x.d.cfg.View.SpansCursor()
	if c.Rev == 0 {
		c.Processes = webhook.Through(x.d.cfg.View.ProcessesRev())
	}
	held, lose, ok := x.take(ctx, c)
	defer lose()
	if !ok {
		return
	}
	err := x.export(held)
	if err != nil && ctx.Err() == nil {
		x.d.cfg.Slog.Warn("export spans failed", "err", describe(err, x.to.Timeout))
	}
	if !kind.Is(err, kind.Conflict) {
		x.release(ctx)
	}
}

// export works until no processes are left. It returns a Conflict if the claim was lost.
func (x *exporter) export(ctx context.Context) error {
	limit, tries := maxSpans, 0
	for {
		page := x.d.cfg.View.EndedAfter(x.cursor.Processes.Rev(), limit)
		if len(page) == 0 {
			return nil
		}
		var spans []*trace.Span
		for i := range page {
			if s := &page[i].Summary; hasSpan(s) && x.to.Sampler.Samples(s.ID, s.Spec.Trace) {
				spans = append(spans, spanOf(&page[i]))
			}
		}
		rejected, err := x.send(ctx, spans)
		switch {
		case err == nil:
			x.advance(&page[len(page)-1], uint64(len(spans))-rejected, rejected)
			limit, tries = maxSpans, 0
		case isFinal(err) && len(page) > 1: // the others need not fail
			limit = len(page) / 2
		case isFinal(err):
			x.d.cfg.Slog.Warn("span given up", "process", page[0].ID, "err", describe(err, x.to.Timeout))
			x.advance(&page[0], 0, 1)
			limit, tries = maxSpans, 0
		default:
			if tries++; tries == 1 {
				x.d.cfg.Slog.Warn("export spans failed: it is tried again until it succeeds", "err", describe(err, x.to.Timeout))
			}
			if err := x.pause(ctx, x.d.backoff(tries)); err != nil {
				return err
			}
		}
		if err := x.renew(ctx); err != nil {
			return err
		}
	}
}

// advance moves the cursor past a process.
func (x *exporter) advance(p *catalog.EndedProcess, done, givenUp uint64) {
	x.cursor.Processes, x.dirty = webhook.Through(p.Rev), true
	x.cursor.Done += done
	x.cursor.GivenUp += givenUp
}

// renew stores the cursor if that is due.
func (x *exporter) renew(ctx context.Context) error {
	if x.storeDue() && !x.store(ctx) {
		return kind.New(kind.Conflict, "export spans", "", "the claim was lost")
	}
	return nil
}

// pause waits, and keeps the claim meanwhile.
func (x *exporter) pause(ctx context.Context, d time.Duration) error {
	for until := time.Now().Add(d); ; {
		left := time.Until(until)
		if left <= 0 {
			return nil
		}
		if !waiting.Sleep(ctx, min(left, x.untilDue())) {
			return ctx.Err()
		}
		if err := x.renew(ctx); err != nil {
			return err
		}
	}
}

// send sends spans, and keeps the claim meanwhile. It returns how many of them the receiver rejected.
func (x *exporter) send(ctx context.Context, spans []*trace.Span) (rejected uint64, err error) {
	if len(spans) == 0 {
		return 0, nil
	}
	body, err := encodeSpans(x.to.Resource, spans)
	if err != nil {
		return 0, err
	}
	type outcome struct {
		rejected uint64
		err      error
	}
	done := make(chan outcome, 1)
	during, cancel := context.WithTimeout(ctx, x.to.Timeout)
	defer cancel()
	go func() {
		n, err := x.post(during, body)
		done <- outcome{min(n, uint64(len(spans))), err}
	}()
	x.cursor.Attempts++
	x.dirty = true
	var lost error
	renew := time.NewTimer(x.untilDue())
	defer renew.Stop()
	for {
		select {
		case got := <-done:
			if lost != nil {
				return 0, lost
			}
			return got.rejected, got.err
		case <-renew.C:
			if lost == nil {
				if lost = x.renew(ctx); lost != nil {
					cancel()
				}
			}
			renew.Reset(max(storeEvery, x.untilDue()))
		}
	}
}

// refused is a response that says that a request will never be accepted.
type refused int

func (r refused) Error() string { return fmt.Sprintf("receiver responded with status %d", int(r)) }

func isFinal(err error) bool {
	_, ok := err.(refused) //nolint:errorlint // post returns it as it is
	return ok
}

// post makes the request.
func (x *exporter) post(ctx context.Context, body []byte) (rejected uint64, err error) {
	if x.to.Gzip {
		var packed bytes.Buffer
		z := gzip.NewWriter(&packed)
		z.Write(body) //nolint:errcheck // a buffer accepts everything
		z.Close()
		body = packed.Bytes()
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, x.to.URL, bytes.NewReader(body))
	if err != nil {
		return 0, err
	}
	for name, value := range x.to.Headers {
		req.Header.Set(name, value)
	}
	req.Header.Set("Content-Type", "application/x-protobuf")
	req.Header.Set("User-Agent", "millrace-traces/1")
	if x.to.Gzip {
		req.Header.Set("Content-Encoding", "gzip")
	}
	resp, err := x.client.Do(req)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	answer, _ := io.ReadAll(io.LimitReader(resp.Body, maxResponse))
	switch code := resp.StatusCode; {
	case webhook.Refuses(code):
		return 0, refused(code)
	case code < 200 || code > 299:
		return 0, fmt.Errorf("receiver responded with status %d", code)
	}
	rejected, reason := partial(answer)
	if rejected > 0 {
		x.d.cfg.Slog.Warn("receiver rejected spans", "spans", rejected, "reason", clip(reason, maxError))
	}
	return rejected, nil
}

// partial returns what an ExportTraceServiceResponse says of rejected spans.
func partial(answer []byte) (rejected uint64, reason string) {
	err := field.Each(answer, func(num protowire.Number, _ uint64, v []byte) error {
		if num != 1 {
			return nil
		}
		return field.Each(v, func(num protowire.Number, u uint64, v []byte) error {
			switch num {
			case 1:
				rejected = u
			case 2:
				reason = string(v)
			}
			return nil
		})
	})
	if err != nil || rejected > 1<<62 { // a negative number
		return 0, ""
	}
	return rejected, reason
}
