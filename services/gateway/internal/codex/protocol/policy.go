package protocol

import (
	"cmp"
	"encoding/json"
	"path"
	"slices"

	"github.com/millrace/millrace/events/process"
	"github.com/millrace/millrace/services/gateway/internal/codex/jsonrpc"
)

// Sandbox is the isolation that a client requests for a process or a file operation, inside of
// the sandbox that the session already runs in.
type Sandbox struct {
	Permissions    json.RawMessage `json:"permissions"`
	Cwd            *Path           `json:"cwd"`
	WorkspaceRoots []Path          `json:"workspaceRoots"`
}

// UnmarshalJSON decodes a policy.
func (s *Sandbox) UnmarshalJSON(raw []byte) error {
	type plain Sandbox
	return decode(raw, (*plain)(s), "permissions")
}

// permissions is the JSON of a policy.
type permissions struct {
	Type       string          `json:"type"`
	FileSystem json.RawMessage `json:"file_system"`
	Network    string          `json:"network"`
}

type fileSystem struct {
	Type    string  `json:"type"`
	Kind    string  `json:"kind"` // Type in releases up to 0.12x
	Entries []entry `json:"entries"`
}

type entry struct {
	Path struct {
		Type  string          `json:"type"`
		Path  json.RawMessage `json:"path"`
		Value struct {
			Kind    string `json:"kind"`
			Subpath string `json:"subpath"`
		} `json:"value"`
	} `json:"path"`
	Access  string `json:"access"`
	Missing string `json:"missing_path_behavior"` // skip; empty: the path must exist
}

// Resolve returns the confinement that a policy requests, or nil if it requests no isolation.
// tmpDir is the value of TMPDIR of the process; it may be empty. A policy that is not understood
// completely is an error.
func (s *Sandbox) Resolve(tmpDir string) (*process.Confinement, error) {
	if s == nil {
		return nil, nil //nolint:nilnil // no policy is no confinement
	}
	var p permissions
	if err := json.Unmarshal(s.Permissions, &p); err != nil {
		return nil, notUnderstood("permissions")
	}
	switch p.Type {
	case "disabled":
		return nil, nil //nolint:nilnil // the client requests no isolation
	case "managed":
	default:
		return nil, notUnderstood("permissions of type " + clip(p.Type))
	}
	c := &process.Confinement{}
	switch p.Network {
	case "restricted":
	case "enabled":
		c.Network = true
	default:
		return nil, notUnderstood("network " + clip(p.Network))
	}
	var fs fileSystem
	if err := json.Unmarshal(p.FileSystem, &fs); err != nil {
		return nil, notUnderstood("file_system")
	}
	switch cmp.Or(fs.Type, fs.Kind) {
	case "unrestricted":
		c.Write = []string{"/"}
		return c, nil
	case "restricted":
	default:
		return nil, notUnderstood("file_system of type " + clip(cmp.Or(fs.Type, fs.Kind)))
	}
	for i := range fs.Entries {
		if err := s.add(c, &fs.Entries[i], tmpDir); err != nil {
			return nil, err
		}
	}
	return c, nil
}

// add adds an entry of the policy to its confinement.
func (s *Sandbox) add(c *process.Confinement, e *entry, tmpDir string) error {
	paths, err := s.paths(e, tmpDir)
	if err != nil {
		return err
	}
	var to *[]string
	switch e.Access {
	case "read":
		to = &c.Read
	case "write":
		to = &c.Write
	case "none", "deny":
		to = &c.Deny
	default:
		return notUnderstood("access " + clip(e.Access))
	}
	switch {
	case e.Missing == "" && !skipped(e.Access, paths):
	case e.Missing == "", e.Missing == "skip":
		c.Optional = append(c.Optional, paths...)
	default:
		return notUnderstood("missing_path_behavior " + clip(e.Missing))
	}
	for _, p := range paths {
		if !slices.Contains(*to, p) {
			*to = append(*to, p)
		}
	}
	return nil
}

// metadata are the names of what codex protects in a workspace.
var metadata = []string{".git", ".agents", ".codex", ".aws"}

// skipped reports whether the paths of an entry without missing_path_behavior may be missing.
// Releases before 0.150 do not have that member. Later ones skip the metadata of a workspace
// if it is missing. A directory that is missing has nothing that could be written.
func skipped(access string, paths []string) bool {
	return access == "write" || access == "read" && !slices.ContainsFunc(paths, func(p string) bool {
		return !slices.Contains(metadata, path.Base(p))
	})
}

// paths returns the paths that an entry names.
func (s *Sandbox) paths(e *entry, tmpDir string) ([]string, error) {
	switch e.Path.Type {
	case "path":
		var p Path
		if err := json.Unmarshal(e.Path.Path, &p); err != nil {
			return nil, notUnderstood("path")
		}
		return []string{p.Name}, nil
	case "special":
	default:
		return nil, notUnderstood("path of type " + clip(e.Path.Type))
	}
	switch e.Path.Value.Kind {
	case "root":
		return []string{"/"}, nil
	case "slash_tmp":
		return []string{"/tmp"}, nil
	case "tmpdir":
		if !path.IsAbs(tmpDir) {
			return nil, nil
		}
		return []string{path.Clean(tmpDir)}, nil
	case "project_roots", "current_working_directory": // the latter up to 0.12x
		return s.projectRoots(e.Path.Value.Subpath)
	}
	return nil, notUnderstood("special path " + clip(e.Path.Value.Kind))
}

// projectRoots returns a path below each workspace root, or below the working directory if the
// policy has no roots.
func (s *Sandbox) projectRoots(below string) ([]string, error) {
	roots := s.WorkspaceRoots
	if len(roots) == 0 && s.Cwd != nil {
		roots = []Path{*s.Cwd}
	}
	if len(roots) == 0 {
		return nil, notUnderstood("project_roots without workspaceRoots and cwd")
	}
	out := make([]string, 0, len(roots))
	for _, r := range roots {
		out = append(out, path.Join(r.Name, path.Clean("/"+below)))
	}
	return out, nil
}

func notUnderstood(what string) error {
	return jsonrpc.Errorf(jsonrpc.CodeInvalidParams, "the requested sandbox policy is not supported: %s", what)
}
