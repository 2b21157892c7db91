package webhook

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/sandbox"
)

// ID names a webhook: a UUID in lower case, which is a token of a subject.
type ID string

// NewID returns a random id.
func NewID() ID {
	var raw [16]byte
	rand.Read(raw[:]) //nolint:errcheck // crypto/rand.Read never fails since Go 1.24
	return ID(formatUUID(raw, 4))
}

// ParseID checks an id from outside. NotFound if it is not a UUID.
func ParseID(s string) (ID, error) {
	s = strings.Clone(strings.ToLower(s)) // not of a request's buffer
	raw, err := hex.DecodeString(strings.ReplaceAll(s, "-", ""))
	if err != nil || len(raw) != 16 || len(s) != 36 || formatDashes([16]byte(raw)) != s {
		return "", kind.New(kind.NotFound, "parse webhook id", "", "webhook not found")
	}
	return ID(s), nil
}

// formatUUID returns raw as a UUID of the given version.
func formatUUID(raw [16]byte, version byte) string {
	raw[6] = raw[6]&0x0f | version<<4
	raw[8] = raw[8]&0x3f | 0x80
	return formatDashes(raw)
}

func formatDashes(raw [16]byte) string {
	s := hex.EncodeToString(raw[:])
	return s[:8] + "-" + s[8:12] + "-" + s[12:16] + "-" + s[16:20] + "-" + s[20:]
}

// NamedUUID returns the UUID that the given words always have.
func NamedUUID(words ...string) string {
	sum := sha256.Sum256([]byte(strings.Join(words, "\x00")))
	return formatUUID([16]byte(sum[:16]), 8)
}

// Webhook is where a tenant receives lifecycle events.
type Webhook struct {
	ID      ID
	Tenant  string
	Name    string
	URL     string
	Enabled bool
	Types   []Type
	Secret  sandbox.Sealed // signature secret
	Created time.Time
	From    Position // events up to this position are not delivered
	Removed bool

	Rev     uint64    // stream sequence of its last change: what the next must expect
	Changed time.Time // when that was stored
}

// Wants reports whether the webhook receives events of the type.
func (w *Webhook) Wants(t Type) bool { return slices.Contains(w.Types, t) }

// The limits of a webhook's fields, in bytes.
const (
	MaxName   = 128
	MaxURL    = 2048
	MaxSecret = 1024
)

// CheckName reports as Invalid a name that cannot be shown.
func CheckName(s string) error {
	if s == "" || len(s) > MaxName || strings.ContainsFunc(s, unicode.IsControl) {
		return kind.Newf(kind.Invalid, "check webhook", "", "name must have 1 to %d bytes and no control characters", MaxName)
	}
	return nil
}

// CheckSecret reports as Invalid a secret that nothing can be signed with.
func CheckSecret(s string) error {
	if s == "" || len(s) > MaxSecret {
		return kind.Newf(kind.Invalid, "check webhook", "", "signatureSecret must have 1 to %d bytes", MaxSecret)
	}
	return nil
}

// CheckURL reports as Invalid a URL that deliveries cannot go to. An address that is
// not public is refused here already where the URL names it; names are resolved, and
// judged again, at each delivery.
func CheckURL(s string, operator *sandbox.Operator) error {
	u, err := url.Parse(s)
	switch {
	case err != nil || len(s) > MaxURL || strings.ContainsFunc(s, unicode.IsControl):
		return kind.Newf(kind.Invalid, "check webhook", "", "url must be a URL of at most %d bytes", MaxURL)
	case u.Scheme != "https" && u.Scheme != "http" || u.Hostname() == "":
		return kind.New(kind.Invalid, "check webhook", "", "url must begin with https:// or http:// and name a host")
	case u.User != nil:
		return kind.New(kind.Invalid, "check webhook", "", "url must not hold a user or a password")
	case u.Fragment != "":
		return kind.New(kind.Invalid, "check webhook", "", "url must not have a fragment")
	}
	if a, err := netip.ParseAddr(u.Hostname()); err == nil && !operator.Allows(a) {
		return kind.Newf(kind.Invalid, "check webhook", "", "url names %s, which is not a public address", a)
	}
	return nil
}

// Cursor is how far a webhook's events were delivered, and by which deliverer.
type Cursor struct {
	At       Position // every wanted event up to this one was delivered or given up
	Holder   string   // deliverer that delivers now; empty: none
	Attempts uint64   // requests sent
	Done     uint64   // events delivered
	GivenUp  uint64   // events whose last attempt failed

	Rev   uint64    // stream sequence: what the next must expect; 0: there is none
	Heard time.Time // by the clock of here: when it came
}

// Ref says where in the log a lifecycle event is.
type Ref struct {
	Sandbox  sandbox.ID
	Position Position
}

// MaxAgain is how many events of a webhook may wait for redelivery.
const MaxAgain = 100

// Again are the events of a webhook that are to be delivered once more.
type Again struct {
	Events []Ref
	Rev    uint64 // stream sequence: what the next must expect; 0: there is none
}

// Attempt is one delivery of an event to a webhook: one HTTP request.
type Attempt struct {
	ID       string // in the header e2b-delivery-id
	EventID  string
	Type     Type
	Ref      Ref
	Number   uint32 // from 1
	Time     time.Time
	Took     time.Duration
	URL      string
	Status   uint32 // of the response; 0: there was none
	Error    string // why it failed; empty: it did not
	Response string // the beginning of the response's body
	Last     bool   // it failed, and no other attempt follows
}

// Failed reports whether the receiver did not take the event.
func (a *Attempt) Failed() bool { return a.Error != "" }
