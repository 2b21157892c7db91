package catalogue

// App is an entry: the program of an agent.
type App struct {
	ID             string          `json:"app_id"`
	Name           string          `json:"name"`
	Description    string          `json:"description"`
	CapabilitySets []CapabilitySet `json:"capability_sets"`
}

// CapabilitySet is a set of tools that an agent may use.
type CapabilitySet struct {
	ID    string   `json:"set_id"`
	Name  string   `json:"name"`
	Tools []string `json:"tools"`
}

// DefaultSet is the id of the set that every program has.
const DefaultSet = "default"

// Apps returns all entries. The texts are those of e2a's reference, to the letter.
func Apps() []App {
	return []App{{
		ID: "deictic", Name: "Deidict (default agent)",
		Description: "General-purpose multi-agent orchestration; recommended default.",
		CapabilitySets: []CapabilitySet{
			{ID: DefaultSet, Name: "Default", Tools: []string{"file_read", "file_write", "shell", "search"}},
		},
	}}
}

// Find returns the entry with an id.
func Find(id string) (App, bool) {
	for _, a := range Apps() {
		if a.ID == id {
			return a, true
		}
	}
	return App{}, false
}

// Set returns the set of tools with an id.
func (a *App) Set(id string) (CapabilitySet, bool) {
	for _, s := range a.CapabilitySets {
		if s.ID == id {
			return s, true
		}
	}
	return CapabilitySet{}, false
}
