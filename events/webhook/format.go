package webhook

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"strconv"
	"strings"
	"time"

	"github.com/millrace/millrace/events/kind"
)

// Format is the form of a webhook's deliveries.
type Format string

// The formats.
const (
	FormatE2B      Format = ""         // E2B's payload, headers and signature
	FormatStandard Format = "standard" // as Standard Webhooks specifies
	FormatOTLP     Format = "otlp"     // a log record of OpenTelemetry, over HTTP
)

// ParseFormat returns the format of a name, of which e2b is the default. It returns Invalid for
// another name.
func ParseFormat(s string) (Format, error) {
	switch f := Format(s); f {
	case FormatE2B, FormatStandard, FormatOTLP:
		return f, nil
	case "e2b":
		return FormatE2B, nil
	}
	return "", kind.New(kind.Invalid, "check webhook", "", "format must be e2b, standard or otlp")
}

// String returns the format's name.
func (f Format) String() string {
	if f == FormatE2B {
		return "e2b"
	}
	return string(f)
}

// Statuses of HTTP.
const (
	badRequest = 400
	tooLarge   = 413
)

// Refuses reports whether a status says that the same request will never be accepted.
func Refuses(status int) bool { return status == badRequest || status == tooLarge }

// Final reports whether an attempt that failed was the last one. E2B's receivers get so many
// attempts. The others get an event until it is accepted, or no longer kept; an OTLP receiver that
// calls the request bad or too large would do so again.
func (f Format) Final(number, attempts, status int) bool {
	switch f {
	case FormatStandard:
		return false
	case FormatOTLP:
		return Refuses(status)
	}
	return number >= attempts
}

// The headers of a delivery in the format standard.
const (
	HeaderStandardID        = "Webhook-Id"
	HeaderStandardTimestamp = "Webhook-Timestamp"
	HeaderStandardSignature = "Webhook-Signature"

	standardPrefix = "whsec_" // of a secret in base64
)

// SignStandard returns the signature of a delivery: HMAC-SHA256 of the event's id, the time in
// seconds and the payload, joined by dots. The key is the secret, or what follows whsec_, decoded
// from base64.
func SignStandard(secret, id string, at time.Time, payload []byte) string {
	key := []byte(secret)
	if text, ok := strings.CutPrefix(secret, standardPrefix); ok {
		if raw, err := base64.StdEncoding.DecodeString(text); err == nil {
			key = raw
		}
	}
	h := hmac.New(sha256.New, key)
	h.Write([]byte(id + "." + strconv.FormatInt(at.Unix(), 10) + "."))
	h.Write(payload)
	return "v1," + base64.StdEncoding.EncodeToString(h.Sum(nil))
}

// standard is an event in the format standard.
type standard struct {
	Type      Type      `json:"type"`
	Timestamp time.Time `json:"timestamp"`
	Data      payload   `json:"data"`
}

func (e *Event) standard() standard { return standard{e.Type, e.Time.UTC(), e.payload()} }

// Standard returns the body of a delivery in the format standard: type, timestamp, and E2B's
// payload as the data. It is the same at every attempt.
func (e *Event) Standard() ([]byte, error) { return json.Marshal(e.standard()) }

// TypeBatch is the type of a delivery with several events in the format standard.
const TypeBatch = "batch"

// StandardBatch returns the id and the body of a delivery of several events in the format standard.
// The data are the events in their order, each as [Event.Standard] returns it. The id is that of
// this sequence of events: a later attempt may contain more of them and have another one.
func StandardBatch(all []*Event) (id string, body []byte, err error) {
	batch := struct {
		Type      string     `json:"type"`
		Timestamp time.Time  `json:"timestamp"`
		Data      []standard `json:"data"`
	}{TypeBatch, all[len(all)-1].Time.UTC(), make([]standard, len(all))}
	ids := make([]string, 0, len(all)+1)
	for i, e := range all {
		batch.Data[i], ids = e.standard(), append(ids, e.ID)
	}
	body, err = json.Marshal(batch)
	return NamedUUID(append(ids, TypeBatch)...), body, err
}
