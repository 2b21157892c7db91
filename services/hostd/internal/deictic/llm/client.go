package llm

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// Limits of requests.
const (
	attempts    = 6                // of a request
	firstWait   = time.Second      // before the second attempt; it doubles
	maxWait     = 30 * time.Second // without Retry-After
	maxAsked    = 5 * time.Minute  // longest Retry-After that is waited for
	maxStream   = 64 << 20         // bytes of an answer with all of its framing
	maxProblem  = 8 << 10          // bytes of an error's body that are read
	silence     = 2 * time.Minute  // time without a byte of the answer
	shownText   = 500              // bytes of a body in an error
	userAgent   = "deictic"
	contentType = "application/json"
)

// Error is the failure of a request to a model.
type Error struct {
	Status     int           // of the response; 0: none, or its body failed
	RetryAfter time.Duration // what the endpoint asked for
	Temporary  bool          // whether another attempt may succeed
	Err        error
}

func (e *Error) Error() string {
	if e.Status != 0 {
		return fmt.Sprintf("the model's endpoint responded %d: %v", e.Status, e.Err)
	}
	return fmt.Sprintf("request to the model's endpoint failed: %v", e.Err)
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// Unauthorized reports whether the endpoint refused the key.
func (e *Error) Unauthorized() bool {
	return e.Status == http.StatusUnauthorized || e.Status == http.StatusForbidden
}

// Client calls models.
type Client struct {
	HTTP     *http.Client
	Endpoint func() (Endpoint, error) // read before each attempt, so that a new key takes effect
	Text     func(string)             // receives an answer's text as it arrives; nil: not needed
	Retry    func(error, time.Duration)
	Wait     func(context.Context, time.Duration) error // nil: sleeps
	Silence  time.Duration                              // longest time without a byte of an answer; default 2 minutes
}

// NewHTTP returns a client for requests to models. It follows no redirect, which would get the key.
func NewHTTP(t *http.Transport) *http.Client {
	return &http.Client{Transport: t, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
}

// Send asks a model, in several attempts if need be.
func (c *Client) Send(ctx context.Context, r *Request) (Answer, error) {
	wait := firstWait
	for n := 1; ; n++ {
		a, err := c.once(ctx, r)
		var e *Error
		if err == nil || ctx.Err() != nil || !errors.As(err, &e) || !e.Temporary || n == attempts || e.RetryAfter > maxAsked {
			return a, err
		}
		pause := wait + rand.N(wait/2)
		wait = min(2*wait, maxWait)
		pause = max(pause, e.RetryAfter)
		if c.Retry != nil {
			c.Retry(err, pause)
		}
		if err := c.wait(ctx, pause); err != nil {
			return Answer{}, err
		}
	}
}

func (c *Client) wait(ctx context.Context, d time.Duration) error {
	if c.Wait != nil {
		return c.Wait(ctx, d)
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// once makes one attempt. Its error has no key.
func (c *Client) once(ctx context.Context, r *Request) (Answer, error) {
	e, err := c.Endpoint()
	if err != nil {
		return Answer{}, err
	}
	a, err := c.attempt(ctx, &e, r)
	var failed *Error
	if errors.As(err, &failed) && e.Key != "" {
		failed.Err = redact(failed.Err, e.Key)
	}
	return a, err
}

func redact(err error, key string) error {
	if text := err.Error(); strings.Contains(text, key) {
		return errors.New(strings.ReplaceAll(text, key, "[key]"))
	}
	return err
}

func (c *Client) attempt(ctx context.Context, e *Endpoint, r *Request) (Answer, error) {
	f := e.format()
	var body bytes.Buffer
	enc := json.NewEncoder(&body)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(f.encode(e, r)); err != nil {
		return Answer{}, err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	quiet := c.Silence
	if quiet == 0 {
		quiet = silence
	}
	watch := time.AfterFunc(quiet, func() { cancel(fmt.Errorf("no data for %s", quiet)) })
	defer watch.Stop()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, e.URL(), &body)
	if err != nil {
		return Answer{}, err
	}
	req.Header.Set("Content-Type", contentType)
	req.Header.Set("Accept", "text/event-stream")
	req.Header.Set("User-Agent", userAgent)
	if e.Vendor == Anthropic {
		req.Header.Set("Anthropic-Version", anthropicVersion)
	}
	if e.Key != "" {
		req.Header.Set(f.header(e.Key))
	}
	resp, err := c.HTTP.Do(req)
	if err != nil {
		return Answer{}, &Error{Temporary: true, Err: because(ctx, err)}
	}
	defer resp.Body.Close()
	stream := &watched{r: resp.Body, left: maxStream, alive: func() { watch.Reset(quiet) }}
	if resp.StatusCode != http.StatusOK {
		return Answer{}, problem(resp, stream)
	}
	d := f.decoder(c.Text)
	if err := decode(stream, d); err != nil {
		return Answer{}, &Error{Temporary: temporary(err), Err: because(ctx, err)}
	}
	a, err := d.end()
	if err != nil {
		return Answer{}, &Error{Temporary: true, Err: err}
	}
	return a, nil
}

// decode decodes an answer: a stream of events, or a JSON object of an endpoint that does not stream.
func decode(r io.Reader, d decoder) error {
	buffered := bufio.NewReaderSize(r, 16<<10)
	object, err := startsObject(buffered)
	if err != nil {
		return err
	}
	if object {
		data, err := io.ReadAll(io.LimitReader(buffered, maxEvent+1))
		if err == nil && len(data) > maxEvent {
			err = errEventSize
		}
		if err != nil {
			return err
		}
		return d.whole(data)
	}
	for data, err := range Events(buffered) {
		if err == nil {
			err = d.event(data)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// startsObject reports whether the first character but for white space begins an object, as no field of an event
// does. At the end of the data it reports false.
func startsObject(r *bufio.Reader) (bool, error) {
	for {
		b, err := r.Peek(1)
		switch {
		case errors.Is(err, io.EOF):
			return false, nil
		case err != nil:
			return false, err
		case b[0] != ' ' && b[0] != '\t' && b[0] != '\r' && b[0] != '\n':
			return b[0] == '{', nil
		}
		r.Discard(1) //nolint:errcheck // it is in the buffer
	}
}

// because returns the reason of a cancellation instead of its consequence.
func because(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	return err
}

// temporary reports whether another answer may be better: one that is too large would be it again.
func temporary(err error) bool {
	if errors.Is(err, errAnswerSize) || errors.Is(err, errEventSize) || errors.Is(err, errStreamSize) || errors.Is(err, errCalls) {
		return false
	}
	var api *apiError
	if errors.As(err, &api) {
		return api.Type == "overloaded_error" || api.Type == "api_error" || api.Type == "rate_limit_error" || api.Type == "server_error"
	}
	return true
}

// problem describes a response that is not an answer.
func problem(resp *http.Response, body io.Reader) *Error {
	text, _ := io.ReadAll(io.LimitReader(body, maxProblem))
	var parsed struct {
		Error apiError `json:"error"`
	}
	var cause error = &parsed.Error
	if json.Unmarshal(text, &parsed) != nil || parsed.Error.Message == "" {
		cause = errors.New(strings.ToValidUTF8(string(text[:min(len(text), shownText)]), "?"))
	}
	return &Error{
		Status: resp.StatusCode, RetryAfter: retryAfter(resp.Header.Get("Retry-After"), time.Now()), Err: cause,
		Temporary: resp.StatusCode == http.StatusTooManyRequests || resp.StatusCode == http.StatusRequestTimeout || resp.StatusCode >= 500,
	}
}

// retryAfter parses the header: seconds or a date.
func retryAfter(v string, now time.Time) time.Duration {
	if s, err := strconv.ParseFloat(v, 64); err == nil {
		if !(s > 0) {
			return 0
		}
		return time.Duration(min(s, 1<<30) * float64(time.Second))
	}
	if t, err := http.ParseTime(v); err == nil {
		return max(t.Sub(now), 0)
	}
	return 0
}

var errStreamSize = fmt.Errorf("the answer has more than %d bytes", maxStream)

// watched limits a body and reports that data arrives.
type watched struct {
	r     io.Reader
	left  int64
	alive func()
}

func (w *watched) Read(b []byte) (int, error) {
	n, err := w.r.Read(b)
	if n > 0 {
		w.alive()
	}
	if w.left -= int64(n); w.left < 0 {
		return 0, errStreamSize
	}
	return n, err
}
