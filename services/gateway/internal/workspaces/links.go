package workspaces

import (
	"crypto/hmac"
	"encoding/base64"
	"encoding/json"
	"strings"
	"time"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/workspace"
)

// Signer derives signatures from a text and a secret of the cluster. *core.Core implements it.
type Signer interface{ DeriveKey(text string) string }

// Links makes and checks links.
type Links struct {
	signer Signer
	now    func() time.Time
}

// NewLinks returns Links.
func NewLinks(s Signer, now func() time.Time) *Links { return &Links{s, now} }

// claims are what a link is for.
type claims struct {
	Method  string `json:"m"`
	Tenant  string `json:"t"`
	App     string `json:"a"`
	Set     string `json:"s"`
	Path    string `json:"p"`
	Expires int64  `json:"e"`
}

const maxToken = 8 << 10 // bytes of a token that is parsed

func (l *Links) sign(method, base string, of workspace.Scope, p workspace.Path) string {
	raw, err := json.Marshal(claims{method, of.Tenant, of.App, of.Set, string(p), l.now().Add(LinkFor).Unix()})
	if err != nil {
		panic(err) // strings and numbers can be encoded
	}
	text := base64.RawURLEncoding.EncodeToString(raw)
	return linkURL(base, text+"."+l.signature(text))
}

func (l *Links) signature(text string) string { return l.signer.DeriveKey("workspace." + text) }

// Check returns the file that a link with a token is for. It returns Denied for a link that is not
// valid for the method, or no longer.
func (l *Links) Check(method, token string) (of workspace.Scope, p workspace.Path, err error) {
	text, signature, _ := strings.Cut(token, ".")
	if len(token) > maxToken || !hmac.Equal([]byte(signature), []byte(l.signature(text))) {
		return of, "", denied("the link's signature is invalid")
	}
	raw, err := base64.RawURLEncoding.DecodeString(text)
	var c claims
	if err == nil {
		err = json.Unmarshal(raw, &c)
	}
	switch {
	case err != nil:
		return of, "", denied("the link is malformed")
	case c.Method != method:
		return of, "", denied("the link is for another method")
	case l.now().Unix() >= c.Expires:
		return of, "", denied("the link has expired")
	}
	if of, err = workspace.ParseScope(c.Tenant, c.App, c.Set); err == nil {
		p, err = workspace.ParsePath(c.Path)
	}
	return of, p, err
}

func denied(msg string) error { return kind.New(kind.Denied, "check link", "", msg) }
