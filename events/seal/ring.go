package seal

import (
	"context"
	"crypto/cipher"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

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

	mu   sync.Mutex // held while the keys are read
	read Reader     // nil: the keys never change
}

// Reader reads the keys of the store. It returns nil if the current data key is still the one
// with that number, which it can tell without a master key.
type Reader func(ctx context.Context, current uint32) (*Ring, error)

// Fresh is how long a ring seals with its current data key after it has read which one is current.
// If a ring is refreshed more often than that, Seal waits for no answer.
const Fresh = 6 * time.Second

// ringKeys are the opened data keys.
type ringKeys struct {
	current uint32
	ciphers map[uint32]cipher.AEAD
	hash    []byte    // key of hashes, which a rotation does not change
	read    time.Time // when their reading began
}

const (
	version = 1 // of a sealed value
	headLen = 5 // version and number of the data key
)

// Seal encrypts a text for a place. An empty text stays empty.
//
// A key that was replaced must not seal values that are stored after its removal. So Seal reads
// which data key is current, unless it did so in the last [Fresh], and returns the error of that.
func (r *Ring) Seal(at Place, text string) (Text, error) {
	if text == "" {
		return "", nil
	}
	keys, err := r.fresh()
	if err != nil {
		return "", err
	}
	aead := keys.ciphers[keys.current]
	out := append(make([]byte, 0, headLen+aead.NonceSize()+len(text)+aead.Overhead()), Head(keys.current)...)
	return Text(sealTo(out, aead, []byte(text), at.data())), nil
}

// Reseal seals a text again for its place, with the current data key.
func (r *Ring) Reseal(at Place, t Text) (Text, error) {
	text, err := r.Open(at, t)
	if err != nil {
		return "", err
	}
	return r.Seal(at, text)
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

// Hash returns a hash of a text at a place. It cannot be computed without the keys of the store,
// so that it does not disclose a text that could be guessed. It never changes.
func (r *Ring) Hash(at Place, text []byte) []byte {
	mac := hmac.New(sha256.New, r.keys.Load().hash)
	mac.Write(at.data())
	mac.Write(text)
	return mac.Sum(nil)
}

// Current reports whether the current data key sealed a text, or the text is empty.
func (r *Ring) Current(t Text) bool {
	n, ok := t.number()
	return t == "" || ok && n == r.keys.Load().current
}

// CurrentKey returns the number of the current data key.
func (r *Ring) CurrentKey() uint32 { return r.keys.Load().current }

// ReadBy sets the function that reads newer keys. It is called once, before the ring is used.
func (r *Ring) ReadBy(read Reader) { r.read = read }

// Refresh reads which data key is current.
func (r *Ring) Refresh() error { return r.refresh(context.Background()) }

func (r *Ring) refresh(ctx context.Context) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	_, err := r.load(ctx, r.keys.Load().current)
	return err
}

// Keep reads which data key is current so often that Seal does not wait for it, until ctx ends.
// Seal returns the error of a read that fails for long.
func (r *Ring) Keep(ctx context.Context) {
	tick := time.NewTicker(Fresh / 3)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			_ = r.refresh(ctx)
		}
	}
}

// fresh returns the keys, not older than Fresh.
func (r *Ring) fresh() (*ringKeys, error) {
	if keys := r.keys.Load(); r.read == nil || time.Since(keys.read) < Fresh {
		return keys, nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	keys := r.keys.Load()
	if time.Since(keys.read) < Fresh { // another goroutine was first
		return keys, nil
	}
	return r.load(context.Background(), keys.current)
}

// load reads the keys, unless the current one has that number. r.mu is held.
func (r *Ring) load(ctx context.Context, current uint32) (*ringKeys, error) {
	keys := *r.keys.Load()
	if r.read == nil {
		return &keys, nil
	}
	begun := time.Now()
	next, err := r.read(ctx, current)
	if err != nil {
		return nil, err
	}
	if next != nil {
		keys = *next.keys.Load()
	}
	keys.read = begun
	r.keys.Store(&keys)
	return &keys, nil
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
	keys, err := r.load(context.Background(), 0)
	if err != nil {
		return nil, err
	}
	aead, ok := keys.ciphers[n]
	if !ok {
		return nil, kind.Newf(kind.Internal, "open", "", "the %s does not exist", dataName(n))
	}
	return aead, nil
}

func (t Text) number() (n uint32, ok bool) {
	if len(t) < headLen || t[0] != version {
		return 0, false
	}
	return binary.BigEndian.Uint32([]byte(t[1:headLen])), true
}

// Head returns the first bytes of all texts that the data key with a number seals.
func Head(number uint32) []byte { return binary.BigEndian.AppendUint32([]byte{version}, number) }

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
