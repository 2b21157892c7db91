package deictic

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
)

// spec describes an agent of app_json.
type spec struct {
	Name        string   `json:"name"`
	Capability  string   `json:"capability_name"`
	Description string   `json:"capability_description"`
	Tools       []string `json:"tools"` // nil: the default
}

// app is app_json. That of a session has the sets by their names, and the name of the one to use.
type app struct {
	Sets  sets   `json:"capability_sets"`
	Scope string `json:"set_id"`
}

// set is a capability set.
type set struct {
	Name   string `json:"name"`
	Agents []spec `json:"agents"`
}

// sets are decoded from an array, or from an object in the order of its names.
type sets []set

// UnmarshalJSON implements [json.Unmarshaler].
func (s *sets) UnmarshalJSON(b []byte) error {
	if len(b) == 0 || b[0] != '{' {
		return json.Unmarshal(b, (*[]set)(s))
	}
	var named map[string]set
	if err := json.Unmarshal(b, &named); err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(named)) {
		one := named[name]
		one.Name = name
		*s = append(*s, one)
	}
	return nil
}

// maxAgents limits the agents of app_json.
const maxAgents = 64

// parseApp returns the agents of app_json, of which there is at least one. Without app_json it is the
// default one. Names are made unique by their number.
func parseApp(text string) ([]spec, error) {
	if text == "" || text == "null" {
		return []spec{{Name: "deictic"}}, nil
	}
	var a app
	if err := json.Unmarshal([]byte(text), &a); err != nil {
		return nil, errors.New("app_json is not valid")
	}
	if i := slices.IndexFunc(a.Sets, func(s set) bool { return a.Scope != "" && s.Name == a.Scope }); i >= 0 {
		a.Sets = a.Sets[i : i+1]
	}
	var all []spec
	for _, s := range a.Sets {
		all = append(all, s.Agents...)
	}
	if len(all) > maxAgents {
		return nil, fmt.Errorf("app_json has %d agents, more than %d", len(all), maxAgents)
	}
	if len(all) == 0 {
		return []spec{{Name: "deictic"}}, nil
	}
	for i := range all {
		s := &all[i]
		if s.Name == "" {
			s.Name = "agent"
		}
		if slices.ContainsFunc(all[:i], func(o spec) bool { return o.Name == s.Name }) {
			s.Name = fmt.Sprint(s.Name, "-", i+1)
		}
	}
	return all, nil
}
