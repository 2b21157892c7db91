package seal

import (
	"crypto/cipher"
	"encoding/binary"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/millrace/millrace/events/kind"
)

// Text is an encrypted text in a record. Only a Ring can read it.
type Text string

// Place is where a sealed value is stored.
type Place struct {
	Tenant string // empty: the cluster's
	Record string // id of the record
	Field  string
}

// Ring seals and opens values with the data keys of a store. Its methods may be called
// concurrently.
type Ring struct {
	keys atomic.Pointer[ringKeys]

	mu     sync.Mutex            // held while the keys are loaded
	reload func() (*Ring, error) // loads newer keys; nil: there are none
}

// ringKeys are the opened data keys.
type ringKeys struct {
	current uint32
	ciphers map[uint32]cipher.AEAD
}

const (
	version = 1 // of a sealed value
	headLen = 5 // version and number of the data key
)

// Seal encrypts a text for a place. An empty text stays empty.
func (r *Ring) Seal(at Place, text string) Text {
	if text == "" {
		return ""
	}
	keys := r.keys.Load()
	aead := keys.ciphers[keys.current]
	out := make([]byte, headLen, headLen+aead.NonceSize()+len(text)+aead.Overhead())
	out[0] = version
	binary.BigEndian.PutUint32(out[1:], keys.current)
	return Text(sealTo(out, aead, []byte(text), at.data()))
}

// Open decrypts a text for the place for which it was sealed. A data key that another service
// has made is loaded from the store. Open returns the error of that, or Internal if the text is
// another place's or damaged.
func (r *Ring) Open(at Place, t Text) (string, error) {
	if t == "" {
		return "", nil
	}
	n, ok := t.number()
	if !ok {
		return "", unreadable(at)
	}
	aead, err := r.cipher(n)
	if err != nil {
		return "", err
	}
	text, err := openFrom(aead, []byte(t[headLen:]), at.data())
	if err != nil {
		return "", unreadable(at)
	}
	return string(text), nil
}

// Current reports whether the current data key sealed a text, or the text is empty.
func (r *Ring) Current(t Text) bool {
	n, ok := t.number()
	return t == "" || ok && n == r.keys.Load().current
}

// ReloadBy sets the function that loads newer keys. It is called once, before the ring is used.
func (r *Ring) ReloadBy(load func() (*Ring, error)) { r.reload = load }

// Reload loads the keys of the store.
func (r *Ring) Reload() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.load()
}

func (r *Ring) load() error {
	if r.reload == nil {
		return nil
	}
	next, err := r.reload()
	if err == nil {
		r.keys.Store(next.keys.Load())
	}
	return err
}

// cipher returns the cipher of a data key.
func (r *Ring) cipher(n uint32) (cipher.AEAD, error) {
	if aead, ok := r.keys.Load().ciphers[n]; ok {
		return aead, nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if aead, ok := r.keys.Load().ciphers[n]; ok {
		return aead, nil
	}
	err := r.load()
	aead, ok := r.keys.Load().ciphers[n]
	if err == nil && !ok {
		err = kind.Newf(kind.Internal, "open", "", "the %s does not exist", dataName(n))
	}
	return aead, err
}

func (t Text) number() (n uint32, ok bool) {
	if len(t) < headLen || t[0] != version {
		return 0, false
	}
	return binary.BigEndian.Uint32([]byte(t[1:headLen])), true
}

func unreadable(at Place) error {
	return kind.Newf(kind.Internal, "open", at.Record, "the sealed %s cannot be read", at.Field)
}

// data returns the place as additional data. The lengths keep two places apart.
func (p Place) data() []byte {
	out := make([]byte, 0, 64)
	for _, s := range [...]string{p.Tenant, p.Record, p.Field} {
		out = binary.AppendUvarint(out, uint64(len(s)))
		out = append(out, s...)
	}
	return out
}

func dataName(n uint32) string { return fmt.Sprintf("data key %d", n) }
