package webhook

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/process"
	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/events/seal"
)

// ID identifies a webhook: a UUID in lower case, which is a token of a subject.
type ID string

// NewID returns a random id.
func NewID() ID {
	var raw [16]byte
	rand.Read(raw[:])
	return ID(formatUUID(raw, 4))
}

// ParseID validates an id from outside. It returns NotFound if it is not a UUID.
func ParseID(s string) (ID, error) {
	s = strings.Clone(strings.ToLower(s)) // does not share a request's buffer
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

// NamedUUID returns the UUID derived from the given words.
func NamedUUID(words ...string) string {
	sum := sha256.Sum256([]byte(strings.Join(words, "\x00")))
	return formatUUID([16]byte(sum[:16]), 8)
}

// Webhook is a receiver of a tenant's lifecycle events.
type Webhook struct {
	ID      ID
	Tenant  string
	Name    string
	URL     string
	Enabled bool
	Types   []Type
	Format  Format
	Secret  seal.Text // signature secret
	Created time.Time
	From    Position // events up to this position are not delivered
	Batch   int      // maximum number of events per delivery; 0: one
	Removed bool

	FromProcesses Position // events of processes up to this position are not delivered

	Rev     uint64    // stream sequence of its last change, which the next change must expect
	Changed time.Time // when that was stored
}

// Place returns the place of the webhook's sealed secret.
func (w *Webhook) Place() seal.Place {
	return seal.Place{Tenant: w.Tenant, Record: string(w.ID), Field: "secret"}
}

// Receives reports whether the webhook receives events of the type.
func (w *Webhook) Receives(t Type) bool { return slices.Contains(w.Types, t) }

// ReceivesProcesses reports whether the webhook receives events of processes.
func (w *Webhook) ReceivesProcesses() bool { return slices.ContainsFunc(w.Types, Type.OfProcess) }

// The limits of a webhook's fields, in bytes.
const (
	MaxName   = 128
	MaxURL    = 2048
	MaxSecret = 1024
)

// CheckName returns Invalid for a name that cannot be displayed.
func CheckName(s string) error {
	if s == "" || len(s) > MaxName || strings.ContainsFunc(s, unicode.IsControl) {
		return kind.Newf(kind.Invalid, "check webhook", "", "name must have 1 to %d bytes and no control characters", MaxName)
	}
	return nil
}

// MaxBatch is the maximum of Batch.
const MaxBatch = 1000

// CheckBatch returns Invalid for a maximum number of events per delivery that the webhook's format
// does not have.
func (w *Webhook) CheckBatch() error {
	switch {
	case w.Batch < 0 || w.Batch > MaxBatch:
		return kind.Newf(kind.Invalid, "check webhook", "", "batch must be from 1 to %d", MaxBatch)
	case w.Batch > 1 && w.Format == FormatE2B:
		return kind.New(kind.Invalid, "check webhook", "", "batch requires the format standard or otlp")
	}
	return nil
}

// CheckSecret returns Invalid for a secret that cannot sign.
func CheckSecret(s string) error {
	if s == "" || len(s) > MaxSecret {
		return kind.Newf(kind.Invalid, "check webhook", "", "signatureSecret must have 1 to %d bytes", MaxSecret)
	}
	return nil
}

// CheckURL returns Invalid for a URL to which nothing can be delivered. It rejects
// addresses that are not public; host names are resolved and checked at each delivery.
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
	case !validPort(u.Port()):
		return kind.New(kind.Invalid, "check webhook", "", "url must have a port from 1 to 65535")
	}
	if a, err := netip.ParseAddr(u.Hostname()); err == nil && !operator.Allows(a) {
		return kind.Newf(kind.Invalid, "check webhook", "", "url names %s, which is not a public address", a)
	}
	return nil
}

// validPort reports whether the port of a URL, if it has one, can be connected to.
func validPort(port string) bool {
	n, err := strconv.ParseUint(port, 10, 16)
	return port == "" || err == nil && n > 0
}

// Cursor is the state of a webhook's deliveries.
type Cursor struct {
	At        Position // all matching events of sandboxes up to this one were delivered or given up
	Processes Position // the same for events of processes
	Holder    string   // current deliverer; empty: none
	Attempts  uint64   // requests sent
	Done      uint64   // events delivered
	GivenUp   uint64   // events whose last attempt failed

	Rev      uint64    // stream sequence, which the next change must expect; 0: none
	Received time.Time // local time of its receipt
}

// Positions returns the positions up to which all events are done.
func (c *Cursor) Positions() Positions { return Positions{c.At, c.Processes} }

// Ref locates an event in the log.
type Ref struct {
	Sandbox  sandbox.ID
	Process  process.ID // of an event of a process; empty: it is one of the sandbox
	Position Position
}

// MaxRedeliveries is the maximum number of a webhook's events that wait for redelivery.
const MaxRedeliveries = 100

// Redeliveries lists the events of a webhook to redeliver.
type Redeliveries struct {
	Events []Ref
	Rev    uint64 // stream sequence, which the next change must expect; 0: none
}

// Attempt is one delivery of an event, or of a batch of them, to a webhook: one HTTP request.
type Attempt struct {
	ID       string // in the header e2b-delivery-id
	EventID  string
	Type     Type
	Ref      Ref
	Number   uint32 // from 1
	Time     time.Time
	Took     time.Duration
	URL      string
	Status   uint32 // of the response; 0: no response
	Error    string // why it failed; empty: it succeeded
	Response string // the beginning of the response's body
	Last     bool   // it failed, and no other attempt follows
	Events   int    // number of events in a batch, of which Ref is the first; 0: no batch
}

// Failed reports whether the receiver did not accept the event.
func (a *Attempt) Failed() bool { return a.Error != "" }
