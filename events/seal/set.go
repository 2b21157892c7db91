package seal

import (
	"crypto/cipher"
	"crypto/rand"
	"maps"
	"slices"

	"golang.org/x/crypto/chacha20poly1305"
)

// Set is the keys in the store, sealed with the master key.
type Set struct {
	Current uint32            // data key that seals new values
	Data    map[uint32][]byte // data keys, by their numbers from 1
	Secrets map[string][]byte // the cluster's secrets, by name
}

// NewSet returns a set with one data key.
func NewSet(m *Master) *Set {
	s := &Set{Data: make(map[uint32][]byte), Secrets: make(map[string][]byte)}
	s.addData(m)
	return s
}

func (s *Set) addData(m *Master) {
	s.Current++
	s.Data[s.Current] = m.wrap(dataName(s.Current), newKey())
}

// AddSecret makes one of the cluster's secrets.
func (s *Set) AddSecret(m *Master, name string) { s.Secrets[name] = m.wrap(name, newKey()) }

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

// Rotated returns a set with the same keys, sealed with the current master key, and a new
// data key for values from now on.
func (s *Set) Rotated(m *Master) (*Set, error) {
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
	out.addData(m)
	return out, nil
}

// Ring opens the data keys of the set.
func (s *Set) Ring(m *Master) (*Ring, error) {
	keys := &ringKeys{current: s.Current, ciphers: make(map[uint32]cipher.AEAD, len(s.Data))}
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
	r := &Ring{}
	r.keys.Store(keys)
	return r, nil
}

func newKey() []byte {
	key := make([]byte, KeySize)
	rand.Read(key)
	return key
}
