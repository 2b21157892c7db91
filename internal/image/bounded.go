package image

import (
	"io"
	"net/http"
	"path"
)

// maxManifest is the maximum size in bytes of a registry's manifest or index: decoded, a
// list entry can take 60 times its encoded size.
const maxManifest = 1 << 20

// boundedManifests is a RoundTripper that bounds manifests. The library bounds all other responses
// except blobs.
type boundedManifests struct{ http.RoundTripper }

// RoundTrip sends the request. Reading a manifest beyond the bound fails.
func (b boundedManifests) RoundTrip(req *http.Request) (*http.Response, error) {
	answer, err := b.RoundTripper.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	first := req
	for first.Response != nil && first.Response.Request != nil { // follow redirects back to the first request
		first = first.Response.Request
	}
	if path.Base(path.Dir(first.URL.Path)) == "manifests" {
		answer.Body = &atMost{answer.Body, maxManifest}
	}
	return answer, nil
}

// atMost is a body that fails after left bytes.
type atMost struct {
	io.ReadCloser
	left int
}

var errLongManifest = invalid("the registry's manifest exceeds %d bytes", maxManifest)

// Read implements io.Reader.
func (a *atMost) Read(p []byte) (int, error) {
	n, err := a.ReadCloser.Read(p[:min(len(p), a.left+1)])
	if a.left -= n; a.left < 0 {
		return 0, errLongManifest
	}
	return n, err
}
