package image

import (
	"io"
	"net/http"
	"path"
)

// maxManifest bounds the bytes of a manifest, or an index, of a registry's: in memory each
// entry of its lists takes 60 times what it may have there.
const maxManifest = 1 << 20

// brief is a way to registries whose manifests are bounded. What else a registry answers the
// library bounds itself, or is a blob.
type brief struct{ http.RoundTripper }

// RoundTrip asks, and has the answer end in an error where it would be too long.
func (b brief) RoundTrip(req *http.Request) (*http.Response, error) {
	answer, err := b.RoundTripper.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	first := req
	for first.Response != nil && first.Response.Request != nil { // it was sent here from there
		first = first.Response.Request
	}
	if path.Base(path.Dir(first.URL.Path)) == "manifests" {
		answer.Body = &atMost{answer.Body, maxManifest}
	}
	return answer, nil
}

// atMost is a body of no more than left bytes.
type atMost struct {
	io.ReadCloser
	left int
}

var errLongManifest = invalid("the registry's manifest has more than %d bytes", maxManifest)

// Read reads on, if there may be more.
func (a *atMost) Read(p []byte) (int, error) {
	n, err := a.ReadCloser.Read(p[:min(len(p), a.left+1)])
	if a.left -= n; a.left < 0 {
		return 0, errLongManifest
	}
	return n, err
}
