package seal

import (
	"cmp"
	"crypto/cipher"
	"crypto/rand"
	"encoding/hex"
	"maps"
	"slices"
	"time"

	"golang.org/x/crypto/chacha20poly1305"

	"github.com/millrace/millrace/events/kind"
)

// HashKey is the name of the secret that is the key of [Ring.Hash]. Each set with a Ring has it.
const HashKey = "hash"

// Set is the keys in the store, sealed with the master key.
type Set struct {
	Current uint32            // data key that seals new values
	Data    map[uint32][]byte // data keys, by their numbers from 1
	Secrets map[string][]byte // the cluster's secrets, by name
}

// NewSet returns a set with one data key and a key for hashes.
func NewSet(m *Master) *Set {
	s := &Set{Data: make(map[uint32][]byte), Secrets: make(map[string][]byte)}
	s.addData(&m.keys[0])
	s.Secrets[HashKey] = m.wrap(HashKey, newKey())
	return s
}

func (s *Set) addData(k *masterKey) {
	s.Current++
	s.Data[s.Current] = k.wrap(dataName(s.Current), newKey())
}

// MasterID returns the id of the master key that sealed the current data key; empty if that is
// damaged.
func (s *Set) MasterID() string {
	wrapped := s.Data[s.Current]
	return hex.EncodeToString(wrapped[:min(len(wrapped), idSize)])
}

// AddSecret makes one of the cluster's secrets. It is sealed with the master key of the other
// keys. AddSecret returns ErrWrong if m does not have that one.
func (s *Set) AddSecret(m *Master, name string) error {
	k, err := m.of(s.Data[s.Current], name)
	if err == nil {
		s.Secrets[name] = k.wrap(name, newKey())
	}
	return err
}

// Secret opens one of the cluster's secrets; ok is false if the set does not have it.
func (s *Set) Secret(m *Master, name string) (value []byte, ok bool, err error) {
	wrapped, ok := s.Secrets[name]
	if !ok {
		return nil, false, nil
	}
	value, err = m.unwrap(name, wrapped)
	return value, true, err
}

// Sealed reports whether the current master key sealed all keys of the set.
func (s *Set) Sealed(m *Master) bool {
	return m.current(s.Data[s.Current]) &&
		!slices.ContainsFunc(slices.Collect(maps.Values(s.Data)), func(w []byte) bool { return !m.current(w) }) &&
		!slices.ContainsFunc(slices.Collect(maps.Values(s.Secrets)), func(w []byte) bool { return !m.current(w) })
}

// Rewrapped returns a set with the same keys, sealed with the current master key.
func (s *Set) Rewrapped(m *Master) (*Set, error) {
	out := &Set{Current: s.Current, Data: make(map[uint32][]byte), Secrets: make(map[string][]byte)}
	for n, wrapped := range s.Data {
		key, err := m.unwrap(dataName(n), wrapped)
		if err != nil {
			return nil, err
		}
		out.Data[n] = m.wrap(dataName(n), key)
	}
	for name, wrapped := range s.Secrets {
		value, err := m.unwrap(name, wrapped)
		if err != nil {
			return nil, err
		}
		out.Secrets[name] = m.wrap(name, value)
	}
	return out, nil
}

// Rotated returns a set with a new data key for values from now on. It is sealed with the master
// key of the other keys. Rotated returns ErrWrong if m does not have that one.
func (s *Set) Rotated(m *Master) (*Set, error) {
	k, err := m.of(s.Data[s.Current], dataName(s.Current))
	if err != nil {
		return nil, err
	}
	out := s.clone()
	out.addData(k)
	return out, nil
}

// Without returns a set without an old data key. Values that it sealed are lost.
func (s *Set) Without(number uint32) (*Set, error) {
	if number == s.Current {
		return nil, kind.Newf(kind.Precondition, "remove key", "", "the %s is the current one", dataName(number))
	}
	out := s.clone()
	delete(out.Data, number)
	return out, nil
}

// Old returns the numbers of the data keys that were replaced, oldest first.
func (s *Set) Old() []uint32 {
	return slices.DeleteFunc(slices.Sorted(maps.Keys(s.Data)), func(n uint32) bool { return n == s.Current })
}

func (s *Set) clone() *Set {
	return &Set{Current: s.Current, Data: maps.Clone(s.Data), Secrets: maps.Clone(s.Secrets)}
}

// Ring opens the data keys of the set.
func (s *Set) Ring(m *Master) (*Ring, error) {
	keys := &ringKeys{current: s.Current, ciphers: make(map[uint32]cipher.AEAD, len(s.Data)), read: time.Now()}
	for n, wrapped := range s.Data {
		raw, err := m.unwrap(dataName(n), wrapped)
		if err != nil {
			return nil, err
		}
		if keys.ciphers[n], err = chacha20poly1305.NewX(raw); err != nil {
			return nil, damaged(dataName(n))
		}
	}
	if _, ok := keys.ciphers[keys.current]; !ok {
		return nil, damaged("current data key")
	}
	var ok bool
	var err error
	if keys.hash, ok, err = s.Secret(m, HashKey); !ok || err != nil {
		return nil, cmp.Or(err, damaged("key of hashes"))
	}
	r := &Ring{}
	r.keys.Store(keys)
	return r, nil
}

func newKey() []byte {
	key := make([]byte, KeySize)
	rand.Read(key)
	return key
}
