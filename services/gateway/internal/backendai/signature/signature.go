package signature

import (
	"crypto/hmac"
	"encoding/hex"
	"hash"
	"strings"
	"time"

	"github.com/millrace/millrace/events/kind"
)

// Request is what a client signs, as received.
type Request struct {
	Method        string
	Target        string // path and query
	Host          string // Host header
	ContentType   string // empty: absent
	Version       string // X-BackendAI-Version header
	Date          string // Date header, or the one that stands for it
	Authorization string // empty: absent
}

// Pair is a key pair.
type Pair struct {
	Tenant string
	Secret string
}

// Check returns the access key and the pair that signed r. find returns the pair of an access key.
func (r *Request) Check(now time.Time, find func(accessKey string) (Pair, bool)) (string, Pair, error) {
	if r.Authorization == "" {
		return "", Pair{}, failed()
	}
	c, err := Parse(r.Authorization)
	if err != nil {
		return "", Pair{}, err
	}
	date, err := ParseDate(r.Date)
	if err != nil {
		return "", Pair{}, err
	}
	if d := now.Sub(date); d > MaxSkew || d < -MaxSkew {
		return "", Pair{}, invalid("Date/time sync error")
	}
	pair, ok := find(c.AccessKey)
	if want := r.Sign(c.Method, pair.Secret, date); !hmac.Equal([]byte(want), []byte(c.Signature)) || !ok {
		return "", Pair{}, failed()
	}
	return c.AccessKey, pair, nil
}

func failed() error {
	return kind.Coded(kind.Unauthenticated, "check signature", "", Failed, "credential/signature mismatch")
}

// Sign returns the signature of r in hex. date is the parsed date of r, and method a supported
// signing method.
func (r *Request) Sign(method, secret string, date time.Time) string {
	h := methods[method]
	empty := h().Sum(nil)
	text := strings.Join([]string{
		r.Method, r.Target, r.Date, "host:" + r.Host, "content-type:" + mediaType(r.ContentType),
		"x-backendai-version:" + r.Version, hex.EncodeToString(empty),
	}, "\n")
	key := sum(h, []byte(secret), date.Format("20060102"))
	return hex.EncodeToString(sum(h, sum(h, key, r.Host), text))
}

func sum(h func() hash.Hash, key []byte, text string) []byte {
	mac := hmac.New(h, key)
	mac.Write([]byte(text))
	return mac.Sum(nil)
}

// mediaType returns the media type of a Content-Type header as clients sign it.
func mediaType(header string) string {
	media, _, _ := strings.Cut(header, ";")
	if media = strings.ToLower(strings.TrimSpace(media)); media == "" {
		return "application/octet-stream"
	}
	return media
}
