package deictic

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
)

// spec describes an agent of app_json.
type spec struct {
	Name        string   `json:"name"`
	Capability  string   `json:"capability_name"`
	Description string   `json:"capability_description"`
	Tools       []string `json:"tools"` // nil: the default
}

// app is app_json.
type app struct {
	Name string `json:"name"`
	Sets []struct {
		Name   string `json:"name"`
		Agents []spec `json:"agents"`
	} `json:"capability_sets"`
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
	var all []spec
	for _, set := range a.Sets {
		all = append(all, set.Agents...)
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
