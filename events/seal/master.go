package seal

import (
	"context"
	"crypto/cipher"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"

	"golang.org/x/crypto/chacha20poly1305"

	"github.com/millrace/millrace/events/kind"
)

// Causes of an error that concerns the master key. The error's kind is Precondition.
var (
	ErrMissing = errors.New("no master key")
	ErrWrong   = errors.New("wrong master key")
)

// KeySize is the size of a key in bytes.
const KeySize = chacha20poly1305.KeySize

const idSize = 8

// Source returns the master keys of a service. It may create the first one if create is set:
// then the store has no sealed value yet.
type Source func(ctx context.Context, create bool) (*Master, error)

// Master is a list of master keys, the current one first. The others open what they sealed
// before a rotation.
type Master struct{ keys []masterKey }

// masterKey is a key with its id, by which a sealed key names it.
type masterKey struct {
	id   [idSize]byte
	aead cipher.AEAD
}

// NewMaster returns the text of a new master key.
func NewMaster() string {
	raw := make([]byte, KeySize)
	rand.Read(raw)
	return hex.EncodeToString(raw)
}

// ParseMaster parses master keys: one per line, 64 hexadecimal digits each, the current one
// first. It ignores empty lines and lines that begin with #. Its errors do not contain a key.
func ParseMaster(text string) (*Master, error) {
	m := &Master{}
	for i, line := range strings.Split(text, "\n") {
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' {
			continue
		}
		raw, err := hex.DecodeString(line)
		if err != nil || len(raw) != KeySize {
			return nil, kind.Newf(kind.Invalid, "parse master key", "", "line %d is not a master key: it must have %d hexadecimal digits", i+1, 2*KeySize)
		}
		aead, err := chacha20poly1305.NewX(raw)
		if err != nil {
			return nil, kind.Wrap(kind.Internal, "parse master key", "", err)
		}
		sum := sha256.Sum256(append([]byte("millrace master key id\x00"), raw...))
		m.keys = append(m.keys, masterKey{id: [idSize]byte(sum[:]), aead: aead})
	}
	if len(m.keys) == 0 {
		return nil, kind.New(kind.Invalid, "parse master key", "", "the text has no master key")
	}
	return m, nil
}

// ID returns the id of the current key. It discloses nothing about the key.
func (m *Master) ID() string { return hex.EncodeToString(m.keys[0].id[:]) }

// IDs returns the ids of all keys, the current one first.
func (m *Master) IDs() []string {
	out := make([]string, len(m.keys))
	for i := range m.keys {
		out[i] = hex.EncodeToString(m.keys[i].id[:])
	}
	return out
}

// wrap seals a key under the current master key.
func (m *Master) wrap(name string, key []byte) []byte { return m.keys[0].wrap(name, key) }

// wrap seals a key: the id of the master key, a nonce, and the ciphertext.
func (k *masterKey) wrap(name string, key []byte) []byte {
	out := append(make([]byte, 0, idSize+k.aead.NonceSize()+len(key)+k.aead.Overhead()), k.id[:]...)
	return sealTo(out, k.aead, key, wrapData(name))
}

// unwrap opens a key. It returns ErrWrong if none of the master keys sealed it.
func (m *Master) unwrap(name string, wrapped []byte) ([]byte, error) {
	k, err := m.of(wrapped, name)
	if err != nil {
		return nil, err
	}
	key, err := openFrom(k.aead, wrapped[idSize:], wrapData(name))
	if err != nil {
		return nil, damaged(name)
	}
	return key, nil
}

// of returns the master key that sealed a key. It returns ErrWrong if m does not have it.
func (m *Master) of(wrapped []byte, name string) (*masterKey, error) {
	if len(wrapped) < idSize {
		return nil, damaged(name)
	}
	for i := range m.keys {
		if m.keys[i].id == [idSize]byte(wrapped) {
			return &m.keys[i], nil
		}
	}
	return nil, &kind.Error{
		Op: "open key", ID: name, Kind: kind.Precondition, Code: "master_key_wrong", Err: ErrWrong,
		Msg: fmt.Sprintf("the store was sealed with the master key %x, and the given one is %s: restore that key", wrapped[:idSize], m.ID()),
	}
}

// current reports whether the current master key sealed a key.
func (m *Master) current(wrapped []byte) bool {
	return len(wrapped) >= idSize && [idSize]byte(wrapped) == m.keys[0].id
}

// Missing returns the error of a service without a master key.
func Missing(msg string) error {
	return &kind.Error{Op: "read master key", Kind: kind.Precondition, Code: "master_key_missing", Msg: msg, Err: ErrMissing}
}

func damaged(name string) error {
	return kind.New(kind.Internal, "open key", name, "a sealed key is damaged")
}

func wrapData(name string) []byte { return []byte("millrace key\x00" + name) }

// sealTo appends a random nonce and the ciphertext to dst.
func sealTo(dst []byte, aead cipher.AEAD, text, data []byte) []byte {
	at := len(dst)
	dst = append(dst, make([]byte, aead.NonceSize())...)
	rand.Read(dst[at:])
	return aead.Seal(dst, dst[at:], text, data)
}

// openFrom reverses sealTo.
func openFrom(aead cipher.AEAD, sealed, data []byte) ([]byte, error) {
	n := aead.NonceSize()
	if len(sealed) < n {
		return nil, errors.New("too short")
	}
	return aead.Open(nil, sealed[:n], sealed[n:], data)
}
