package sandboxes

import (
	"bytes"
	"encoding/json"

	"github.com/millrace/millrace/services/gateway/internal/e2a/body"
)

const (
	legacyWire = 1        // the wire version with a single agent
	maxApp     = 64 << 10 // bytes of an application
)

// checkApp checks the application and the version of its protocol.
func (r *request) checkApp() error {
	if v := r.WireVersion; v != nil && *v != legacyWire && *v != 2 {
		return body.Invalid("wire_version must be 1 or 2")
	}
	switch {
	case r.AppJSON == nil:
		return nil
	case len(r.AppJSON) > maxApp:
		return body.Invalid("app_json is longer than 65536 bytes")
	}
	agents, err := countAgents(r.AppJSON)
	if err == nil && agents > 1 && r.WireVersion != nil && *r.WireVersion == legacyWire {
		err = body.Invalid("multi-agent requires wire_version=2")
	}
	return err
}

// app returns the JSON of a valid application without white space; empty: there is none.
func (r *request) app() string {
	var b bytes.Buffer
	if r.AppJSON == nil || json.Compact(&b, r.AppJSON) != nil {
		return ""
	}
	return b.String()
}

// countAgents checks an application and returns the number of its agents.
func countAgents(raw json.RawMessage) (int, error) {
	const wantList = "an array of objects"
	var name string
	var sets []json.RawMessage
	var tools, prompt json.RawMessage
	err := body.Parse(raw, body.Field{Name: "name", Into: &name}, body.Field{Name: "capability_sets", Into: &sets, Want: wantList},
		body.Field{Name: "tools", Into: &tools}, body.Field{Name: "system_prompt", Into: &prompt})
	switch {
	case err != nil:
		return 0, err
	case tools != nil || prompt != nil:
		return 0, body.Invalid("app_json has the legacy flat form: tools and system_prompt belong to the agents of capability_sets")
	case len(sets) == 0:
		return 0, body.Invalid("app_json requires capability_sets")
	}
	n := 0
	for _, set := range sets {
		var agents []json.RawMessage
		if err := body.Parse(set, body.Field{Name: "name", Into: &name}, body.Field{Name: "agents", Into: &agents, Want: wantList}); err != nil {
			return 0, err
		}
		if len(agents) == 0 {
			return 0, body.Invalid("app_json requires agents in each of its capability_sets")
		}
		for _, a := range agents {
			if err := checkAppAgent(a); err != nil {
				return 0, err
			}
		}
		n += len(agents)
	}
	return n, nil
}

func checkAppAgent(raw json.RawMessage) error {
	var text string
	var tools []string
	return body.Parse(raw, body.Field{Name: "name", Into: &text}, body.Field{Name: "capability_name", Into: &text},
		body.Field{Name: "capability_description", Into: &text}, body.Field{Name: "tools", Into: &tools, Want: "an array of strings"})
}
