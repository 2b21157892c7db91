package protocol

import (
	"net/url"
	"strings"

	"github.com/millrace/millrace/services/gateway/internal/codex/jsonrpc"
)

// Header is a header of an HTTP request or response.
type Header struct {
	Name        string  `json:"name"`
	Value       string  `json:"value"`
	ValueEnvVar *string `json:"valueEnvVar,omitempty"` // of a request: the variable of the sandbox that has the value
}

// HTTPParams are the parameters of http/request.
type HTTPParams struct {
	Method         string   `json:"method"`
	URL            string   `json:"url"`
	Headers        []Header `json:"headers"`
	Body           *Bytes   `json:"bodyBase64"`
	TimeoutMS      *uint64  `json:"timeoutMs"`
	RedirectPolicy string   `json:"redirectPolicy"`
	RequestID      string   `json:"requestId"`
	Stream         bool     `json:"streamResponse"`
}

// HTTPResponse is the result of http/request.
type HTTPResponse struct {
	Status  int      `json:"status"`
	Headers []Header `json:"headers"`
	Body    []byte   `json:"bodyBase64"`
}

// BodyDelta are the parameters of http/request/bodyDelta.
type BodyDelta struct {
	RequestID string  `json:"requestId"`
	Seq       uint64  `json:"seq"`
	Delta     []byte  `json:"deltaBase64"`
	Done      bool    `json:"done"`
	Error     *string `json:"error"`
}

// maxHeaders is the maximum number of headers of a request.
const maxHeaders = 256

// ParseHTTP decodes and checks parameters.
func ParseHTTP(raw []byte) (HTTPParams, error) {
	var p HTTPParams
	if err := decode(raw, &p, "method", "url", "requestId"); err != nil {
		return p, err
	}
	if p.RedirectPolicy == "" {
		p.RedirectPolicy = "follow"
	}
	u, err := url.Parse(p.URL)
	switch {
	case len(p.RequestID) > MaxHandleID:
		return p, bad("requestId is too long")
	case p.Method == "" || !isToken(p.Method):
		return p, bad("invalid method")
	case err != nil || u.Host == "":
		return p, bad("invalid url")
	case !strings.EqualFold(u.Scheme, "http") && !strings.EqualFold(u.Scheme, "https"):
		return p, bad("only http and https URLs are supported")
	case p.RedirectPolicy != "follow" && p.RedirectPolicy != "stop":
		return p, bad("redirectPolicy must be follow or stop")
	case len(p.Headers) > maxHeaders:
		return p, jsonrpc.Errorf(jsonrpc.CodeInvalidParams, "%d headers, the limit is %d", len(p.Headers), maxHeaders)
	}
	for _, h := range p.Headers {
		if !isToken(h.Name) || strings.ContainsAny(h.Value, "\r\n\x00") {
			return p, bad("invalid header")
		}
	}
	return p, nil
}

// isToken reports whether s can be a method or the name of a header.
func isToken(s string) bool {
	for i := range len(s) {
		c := s[i]
		if c <= ' ' || c >= 0x7f || strings.IndexByte(`"(),/:;<=>?@[\]{}`, c) >= 0 {
			return false
		}
	}
	return s != ""
}
