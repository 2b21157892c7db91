package rig

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/pb33f/libopenapi"
	validator "github.com/pb33f/libopenapi-validator"
	"github.com/pb33f/libopenapi-validator/config"
	verrors "github.com/pb33f/libopenapi-validator/errors"
	v3 "github.com/pb33f/libopenapi/datamodel/high/v3"
)

// maxChecked is the size in bytes up to which a body is checked. Larger ones pass.
const maxChecked = 1 << 20

// Contract is an [http.RoundTripper] that compares exchanges with the OpenAPI document of the gateway:
// every response of a family of routes, and the requests that succeeded. Other exchanges pass.
//
// # Errors
// An exchange that the document does not allow ends in an error: instead of the response, or instead of
// the end of its body. It is also recorded, because a test may ignore the errors of its client.
//
// # Concurrency
// A Contract is safe for concurrent use.
type Contract struct {
	next  http.RoundTripper
	check validator.Validator
	paths []path

	mu    sync.Mutex
	bad   []string
	count int
	took  time.Duration
}

// path is a path of the document, in segments. The last one of a path with slashes matches all the rest.
type path struct {
	segments []string
	rest     bool
	item     *v3.PathItem
	name     string
}

// restSegment is the parameter whose value may have slashes.
const restSegment = "{path}"

// NewContract returns a contract for the routes with a tag, in front of next. The document is the one in
// this repository.
func NewContract(next http.RoundTripper, tag string) (*Contract, error) {
	text, err := document()
	if err != nil {
		return nil, err
	}
	doc, err := libopenapi.NewDocument(text)
	if err != nil {
		return nil, fmt.Errorf("parse the OpenAPI document: %w", err)
	}
	model, err := doc.BuildV3Model()
	if err != nil {
		return nil, fmt.Errorf("read the OpenAPI document: %w", err)
	}
	check, errs := validator.NewValidator(doc, config.WithFormatAssertions(), config.WithoutSecurityValidation())
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	if ok, found := check.ValidateDocument(); !ok {
		return nil, fmt.Errorf("the OpenAPI document is invalid: %s", describe(found))
	}
	c := &Contract{next: next, check: check}
	for name, item := range model.Model.Paths.PathItems.FromOldest() {
		for _, op := range item.GetOperations().FromOldest() {
			if slices.Contains(op.Tags, tag) {
				s := strings.Split(name, "/")
				c.paths = append(c.paths, path{s, s[len(s)-1] == restSegment, item, name})
				break
			}
		}
	}
	if len(c.paths) == 0 {
		return nil, fmt.Errorf("the OpenAPI document has no path with the tag %s", tag)
	}
	slices.SortFunc(c.paths, func(a, b path) int { return strings.Count(a.name, "{") - strings.Count(b.name, "{") })
	return c, nil
}

// document returns the OpenAPI document.
func document() ([]byte, error) {
	names, err := filepath.Glob(filepath.Join(Root(), "services/gateway/internal/openapi/spec/*.yaml"))
	if err != nil {
		return nil, err
	}
	var all []byte
	for _, name := range names {
		raw, err := os.ReadFile(name)
		if err != nil {
			return nil, err
		}
		all = append(all, raw...)
	}
	return all, nil
}

// RoundTrip implements [http.RoundTripper].
func (c *Contract) RoundTrip(req *http.Request) (*http.Response, error) {
	p := c.find(req.URL)
	if p == nil || operation(p.item, req.Method) == nil {
		return c.next.RoundTrip(req)
	}
	x := &exchange{c: c, path: p, req: req}
	if req.Body != nil {
		req = req.Clone(req.Context())
		req.Body = &tee{ReadCloser: req.Body, into: &x.sent}
	}
	resp, err := c.next.RoundTrip(req)
	if err != nil || req.Method == http.MethodHead || resp.StatusCode == http.StatusSwitchingProtocols {
		return resp, err
	}
	x.resp = resp
	resp.Body = &tee{ReadCloser: resp.Body, into: &x.got, end: x.end}
	return resp, nil
}

// CloseIdleConnections closes the idle connections of the next transport.
func (c *Contract) CloseIdleConnections() {
	if n, ok := c.next.(interface{ CloseIdleConnections() }); ok {
		n.CloseIdleConnections()
	}
}

// find returns the path of the document that a URL has; nil for another URL.
func (c *Contract) find(u *url.URL) *path {
	segments := strings.Split(u.EscapedPath(), "/")
	for i := range c.paths {
		if c.paths[i].matches(segments) {
			return &c.paths[i]
		}
	}
	return nil
}

func (p *path) matches(segments []string) bool {
	if len(segments) != len(p.segments) && !(p.rest && len(segments) > len(p.segments)) {
		return false
	}
	for i, want := range p.segments {
		if !strings.HasPrefix(want, "{") && want != segments[i] {
			return false
		}
		if segments[i] == "" && i > 0 {
			return false
		}
	}
	return true
}

func operation(item *v3.PathItem, method string) *v3.Operation {
	op, _ := item.GetOperations().Get(strings.ToLower(method))
	return op
}

// Check returns an error with all exchanges that the document does not allow, and what the comparison took.
func (c *Contract) Check() (exchanges int, took time.Duration, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.bad) > 0 {
		err = errors.New(strings.Join(c.bad, "\n"))
	}
	return c.count, c.took, err
}

// exchange is a request and its response.
type exchange struct {
	c         *Contract
	path      *path
	req       *http.Request
	resp      *http.Response
	sent, got captured
}

// end compares the exchange with the document when the body of the response has ended.
func (x *exchange) end() error {
	sent, got := x.sent.bytes(), x.got.bytes()
	if len(got) > maxChecked || len(sent) > maxChecked {
		return nil
	}
	begun := time.Now()
	err := x.compare(sent, got)
	x.c.mu.Lock()
	defer x.c.mu.Unlock()
	x.c.count++
	x.c.took += time.Since(begun)
	if err != nil {
		x.c.bad = append(x.c.bad, err.Error())
	}
	return err
}

func (x *exchange) compare(sent, got []byte) error {
	req := x.req.Clone(x.req.Context())
	req.URL.Path = x.path.single(req.URL.EscapedPath())
	req.URL.RawPath = ""
	req.Body = io.NopCloser(bytes.NewReader(sent))
	resp := *x.resp
	resp.Body = io.NopCloser(bytes.NewReader(got))
	ok, found := x.c.check.ValidateHttpResponse(req, &resp)
	if ok && resp.StatusCode/100 == 2 {
		if body := operation(x.path.item, req.Method).RequestBody; len(sent) > 0 && body != nil {
			req.Header.Set("Content-Type", body.Content.First().Key()) // e2a does not read the header
		}
		ok, found = x.c.check.ValidateHttpRequestSync(req)
	}
	if ok {
		return nil
	}
	return fmt.Errorf("the OpenAPI document does not allow: %s %s: %s: %s\nrequest: %.300s\nresponse: %.300s", x.req.Method, x.path.name, x.resp.Status, describe(found), sent, got)
}

// single returns the path of a URL with one plain segment for each parameter with a character that the
// validator reads in another way than the gateway.
func (p *path) single(escaped string) string {
	segments := strings.Split(escaped, "/")[:len(p.segments)]
	for i, want := range p.segments {
		if want == restSegment || strings.HasPrefix(want, "{") && strings.Contains(segments[i], "%") {
			segments[i] = "x"
		}
	}
	return strings.Join(segments, "/")
}

func describe(found []*verrors.ValidationError) string {
	var all []string
	for _, e := range found {
		text := e.Message + ": " + e.Reason
		for _, s := range e.SchemaValidationErrors {
			text += "; " + s.FieldPath + " " + s.Reason
		}
		all = append(all, text)
	}
	return strings.Join(all, " | ")
}

// captured is the beginning of a body: at most maxChecked bytes and one more. A request may still be sent
// when its response has ended.
type captured struct {
	mu  sync.Mutex
	raw []byte
}

func (c *captured) add(p []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.raw = append(c.raw, p[:min(len(p), maxChecked+1-len(c.raw))]...)
}

func (c *captured) bytes() []byte {
	c.mu.Lock()
	defer c.mu.Unlock()
	return bytes.Clone(c.raw)
}

// tee captures what is read. At the end it calls end.
type tee struct {
	io.ReadCloser

	into *captured
	end  func() error
	done bool
}

// Read implements [io.Reader].
func (t *tee) Read(p []byte) (int, error) {
	n, err := t.ReadCloser.Read(p)
	t.into.add(p[:n])
	if errors.Is(err, io.EOF) && t.end != nil && !t.done {
		t.done = true
		if bad := t.end(); bad != nil {
			return n, bad
		}
	}
	return n, err
}
