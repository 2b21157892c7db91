package bundle

import (
	"crypto/rand"
	"encoding/hex"
	"slices"
	"strings"
	"time"

	"github.com/millrace/millrace/events/kind"
)

// Head is what is known about a bundle without its values.
type Head struct {
	Name       Name
	Keys       []string   // names, in order
	Generation Generation // of the values that are valid
	Created    time.Time
	Rotated    time.Time // when the values were replaced last; Created if they never were
}

// State is the bundles of a tenant.
type State struct {
	Tenant string
	Heads  []Head // by name
	Rev    uint64 // stream sequence, which the next change must expect
}

// Body is one of Created, Rotated or Deleted.
//
//sumtype:decl
type Body interface {
	Kind() string
	name() Name
	apply(was Head) (next Head, exists bool)
}

// Created says that a bundle was made.
type Created struct {
	Name       Name
	Keys       []string
	Generation Generation
	At         time.Time
}

// Rotated says that all values of a bundle were replaced.
type Rotated struct {
	Name       Name
	Keys       []string
	Generation Generation
	At         time.Time
}

// Deleted says that a bundle was deleted.
type Deleted struct{ Name Name }

// Kind returns the name of the event.
func (Created) Kind() string { return "created" }

// Kind returns the name of the event.
func (Rotated) Kind() string { return "rotated" }

// Kind returns the name of the event.
func (Deleted) Kind() string { return "deleted" }

func (e Created) name() Name { return e.Name }
func (e Rotated) name() Name { return e.Name }
func (e Deleted) name() Name { return e.Name }

// possible are the events that can happen to a bundle, by whether it exists.
var possible = map[bool]map[string]bool{
	false: {"created": true},
	true:  {"rotated": true, "deleted": true},
}

// Find returns a bundle. It returns NotFound if the tenant has none of that name.
func (s *State) Find(n Name) (Head, error) {
	if i, ok := s.index(n); ok {
		return s.Heads[i], nil
	}
	return Head{}, notFound(n)
}

func (s *State) index(n Name) (int, bool) {
	return slices.BinarySearchFunc(s.Heads, n, func(h Head, n Name) int { return strings.Compare(string(h.Name), string(n)) })
}

func notFound(n Name) error {
	return kind.Newf(kind.NotFound, "find secret bundle", string(n), "secret bundle '%s' not found", n)
}

// Apply returns the state after an event, and the bundle that it replaced or deleted. It returns
// Conflict if a bundle that is made exists, NotFound if another one does not, and Throttled with
// the code quota_exceeded if there would be more than MaxBundles.
func (s *State) Apply(b Body) (next State, was Head, err error) {
	i, exists := s.index(b.name())
	switch {
	case !possible[exists][b.Kind()] && exists:
		return *s, was, kind.Coded(kind.Conflict, "create secret bundle", string(b.name()), "secret_bundle_exists", "secret bundle '"+string(b.name())+"' already exists")
	case !possible[exists][b.Kind()]:
		return *s, was, notFound(b.name())
	case !exists && len(s.Heads) >= MaxBundles:
		return *s, was, kind.Coded(kind.Throttled, "create secret bundle", string(b.name()), "quota_exceeded", "the tenant has 50 secret bundles, which is the limit")
	}
	next = *s
	next.Heads = slices.Clone(s.Heads)
	if exists {
		was = s.Heads[i]
	}
	switch h, stays := b.apply(was); {
	case !stays:
		next.Heads = slices.Delete(next.Heads, i, i+1)
	case exists:
		next.Heads[i] = h
	default:
		next.Heads = slices.Insert(next.Heads, i, h)
	}
	return next, was, nil
}

func (e Created) apply(Head) (Head, bool) {
	return Head{e.Name, e.Keys, e.Generation, e.At, e.At}, true
}

func (e Rotated) apply(was Head) (Head, bool) {
	was.Keys, was.Generation, was.Rotated = e.Keys, e.Generation, e.At
	return was, true
}

func (Deleted) apply(was Head) (Head, bool) { return was, false }

// Select returns the bundles of several names. It returns NotFound if one does not exist, and
// Invalid if there are more than MaxResolved or two of them have a key of the same name.
func (s *State) Select(names []Name) ([]Head, error) {
	if len(names) > MaxResolved {
		return nil, kind.Newf(kind.Invalid, "resolve secrets", "", "secrets has %d bundles, the limit is %d", len(names), MaxResolved)
	}
	out := make([]Head, len(names))
	from := make(map[string]Name)
	for i, n := range names {
		h, err := s.Find(n)
		if err != nil {
			return nil, err
		}
		for _, key := range h.Keys {
			if first, ok := from[key]; ok {
				return nil, kind.Coded(kind.Invalid, "resolve secrets", "", "secret_key_collision", "the key "+key+" is in two secret bundles, "+string(first)+" and "+string(n))
			}
			from[key] = n
		}
		out[i] = h
	}
	return out, nil
}

const generationBytes = 12

// NewGeneration returns a new random generation.
func NewGeneration() Generation {
	raw := make([]byte, generationBytes)
	rand.Read(raw)
	return Generation(hex.EncodeToString(raw))
}
