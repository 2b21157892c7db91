package session

import (
	"maps"

	"github.com/millrace/millrace/events/sandbox"
)

// A session is renamed by the record of a sandbox that never runs: it has the id that a new session
// with the name would have, so that it competes with the creation of one, and names the session's
// sandbox. The newest of these records has the name of a session.

// NameFor returns the metadata of the record that gives a name to a session.
func NameFor(name string) map[string]string { return map[string]string{metaName: name} }

// Names are the names of sessions that were renamed.
type Names map[sandbox.ID]sandbox.State

// NamesOf returns the names in some sandboxes.
func NamesOf(all []sandbox.State) Names {
	n := make(Names)
	for _, s := range all {
		named := s.Request.Names()
		if had, ok := n[named]; named != "" && (!ok || s.Rev > had.Rev) {
			n[named] = s
		}
	}
	return n
}

// Apply gives a session its name.
func (n Names) Apply(st *sandbox.State) {
	if s, ok := n[st.ID]; ok {
		m := maps.Clone(st.Request.Metadata)
		m[metaName] = Name(&s)
		st.Request.Metadata = m
	}
}
