package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
)

// entry is a server in the configuration (GitHubMcpServer in npm e2b 2.51).
type entry struct {
	Run     string            `json:"runCmd"`     // command that serves MCP over stdio
	Install string            `json:"installCmd"` // command to run before, in the repository's root
	Env     map[string]string `json:"envs"`       // environment of both
}

// maxServers is the maximum number of servers in a configuration.
const maxServers = 64

var (
	errCatalog = errors.New("the servers of E2B's catalog are Docker images, which are not available here: " +
		`configure "github/OWNER/REPO" with a runCmd instead`)
	repository = regexp.MustCompile(`^github/([A-Za-z0-9_-][A-Za-z0-9._-]*)/([A-Za-z0-9_-][A-Za-z0-9._-]*)$`)
)

// parse decodes a configuration: servers by name.
func parse(raw []byte) (map[string]entry, error) {
	var all map[string]json.RawMessage
	if err := json.Unmarshal(raw, &all); err != nil {
		return nil, fmt.Errorf("the configuration is not an object: %w", err)
	}
	if len(all) > maxServers {
		return nil, fmt.Errorf("more than %d servers", maxServers)
	}
	found := make(map[string]entry, len(all))
	for name, text := range all {
		if !repository.MatchString(name) {
			return nil, fmt.Errorf("%q: %w", name, errCatalog)
		}
		var e entry
		d := json.NewDecoder(bytes.NewReader(text))
		d.DisallowUnknownFields()
		if err := d.Decode(&e); err != nil {
			return nil, fmt.Errorf("%q: %w", name, err)
		}
		if e.Run == "" {
			return nil, fmt.Errorf("%q: runCmd is required", name)
		}
		found[name] = e
	}
	return found, nil
}
