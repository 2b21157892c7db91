// Package audit is the vocabulary of the audit trail: requests that were denied. It does no I/O.
//
// # Chains
// Each run of a gateway writes one chain. A [Link] has the hash of the link before it, so that a
// link that is changed, removed or inserted later is found by [Verifier]. The last links of a
// chain can be removed unnoticed: to find that, store the end of each chain elsewhere.
//
// # Content
// An entry names the request, never a credential. Equal denials that are stored at the same time
// are one entry with their number.
package audit

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"time"

	"github.com/millrace/millrace/events/kind"
)

// Entry is a denied request.
type Entry struct {
	Chain   string    `json:"chain"` // run of the gateway
	Seq     uint64    `json:"seq"`   // position in its chain, from 1
	Time    time.Time `json:"time"`
	Event   string    `json:"event"` // name of the denial, as in the response unless the owner is known
	Status  int       `json:"status"`
	Method  string    `json:"method"`
	Path    string    `json:"path"`
	Tenant  string    `json:"tenant,omitempty"`          // of the client; empty: it was not authenticated
	Owner   string    `json:"owner_tenant_id,omitempty"` // of what the client asked for
	Source  string    `json:"source,omitempty"`          // address of the client
	Request string    `json:"request_id,omitempty"`      // of the first request
	Count   int       `json:"count"`                     // requests that were denied alike
}

// Link is an entry in its chain.
type Link struct {
	Prev  Hash            `json:"prev"`
	Hash  Hash            `json:"hash"`
	Entry json.RawMessage `json:"entry"` // the bytes that were hashed
}

// Hash is the hash of a link.
type Hash [sha256.Size]byte

// MarshalText returns hexadecimal digits.
func (h Hash) MarshalText() ([]byte, error) { return []byte(hex.EncodeToString(h[:])), nil }

// UnmarshalText parses hexadecimal digits.
func (h *Hash) UnmarshalText(text []byte) error {
	raw, err := hex.DecodeString(string(text))
	if err != nil || len(raw) != len(h) {
		return kind.New(kind.Invalid, "parse hash", "", "a hash must have 64 hexadecimal digits")
	}
	*h = Hash(raw)
	return nil
}

// Start returns what the first link of a chain has as the hash of the link before it.
func Start(chain string) Hash { return sha256.Sum256([]byte("millrace audit\x00" + chain)) }

// NewLink returns the link of an entry after the one with hash prev.
func NewLink(prev Hash, e *Entry) (Link, error) {
	raw, err := json.Marshal(e)
	return Link{Prev: prev, Hash: sum(prev, raw), Entry: raw}, kind.Wrap(kind.Internal, "link entry", e.Chain, err)
}

func sum(prev Hash, entry []byte) Hash {
	return sha256.Sum256(append(prev[:], entry...))
}

// Verifier checks links in the order in which they were stored. Its zero value is ready.
type Verifier struct {
	Links  int               `json:"links"`
	Chains map[string]*Chain `json:"chains"`
}

// Chain is what a Verifier found of a chain.
type Chain struct {
	First uint64 `json:"first"` // seq of its first link; greater than 1 if older ones have expired
	Last  uint64 `json:"last"`  // seq of its last link
	End   Hash   `json:"end"`   // hash of the last link
}

// Add checks the next link of any chain. It returns Precondition, with what is wrong, if the trail
// was changed.
func (v *Verifier) Add(l *Link) (Entry, error) {
	var e Entry
	if err := json.Unmarshal(l.Entry, &e); err != nil {
		return e, broken(v.Links, &e, "is not readable")
	}
	if l.Hash != sum(l.Prev, l.Entry) {
		return e, broken(v.Links, &e, "was changed: its hash is another one")
	}
	c := v.Chains[e.Chain]
	switch {
	case c == nil && e.Seq == 1 && l.Prev != Start(e.Chain):
		return e, broken(v.Links, &e, "is not the start of its chain")
	case c != nil && e.Seq != c.Last+1:
		return e, kind.Newf(kind.Precondition, "verify audit trail", e.Chain, "chain %.64s: link %d follows link %d: links are missing", e.Chain, e.Seq, c.Last)
	case c != nil && l.Prev != c.End:
		return e, broken(v.Links, &e, "does not follow the link before it")
	}
	if c == nil {
		c = &Chain{First: e.Seq}
		if v.Chains == nil {
			v.Chains = make(map[string]*Chain)
		}
		v.Chains[e.Chain] = c
	}
	c.Last, c.End = e.Seq, l.Hash
	v.Links++
	return e, nil
}

func broken(n int, e *Entry, what string) error {
	return kind.Newf(kind.Precondition, "verify audit trail", e.Chain, "link %d of the trail (chain %.64s, link %d) %s", n+1, e.Chain, e.Seq, what)
}
