// Package live contains what drivers share about a running shim: the state file that
// outlives hostd, the shim's socket, and monitoring of a process that need not
// be a child.
package live

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/services/hostd/internal/driver"
)

const stateFile = "state.json"

// ErrGone reports that the process of a State has ended.
var ErrGone = errors.New("the shim is gone")

// errTruncated reports a state file truncated by a loss of power, since it is not synced: a
// kill leaves it complete. Nothing that it named is running.
var errTruncated = errors.New("the state is truncated")

// State is the information needed to find a sandbox again. It is written before the first
// thing that it names is created, so that an interruption at any point leaves
// nothing that is not named.
type State struct {
	Driver  string     `json:"driver"`
	ID      sandbox.ID `json:"id"`
	PID     int        `json:"pid,omitempty"`   // 0: the shim has not been started yet
	Start   uint64     `json:"start,omitempty"` // start time in clock ticks since boot, which distinguishes it from a later process with the same pid
	Boot    string     `json:"boot"`            // boot id of the kernel
	UIDBase uint32     `json:"uid_base,omitempty"`
	Cgroups []string   `json:"cgroups,omitempty"` // directories
	From    string     `json:"from,omitempty"`    // snapshot that it was created from, if still needed
	Disk    string     `json:"disk,omitempty"`    // loop device of its disk
	Etc     string     `json:"etc,omitempty"`     // copy of the host's /etc that it uses
	Tree    bool       `json:"tree,omitempty"`    // whether it was created from a template's tree
	Dataset string     `json:"dataset,omitempty"` // ZFS dataset
}

// Save writes s into dir atomically. It does not sync: what the state names does not
// survive a loss of power either.
func (s State) Save(dir string) error {
	b, err := json.Marshal(s)
	if err != nil {
		return err
	}
	tmp := filepath.Join(dir, stateFile+".tmp")
	if err := os.WriteFile(tmp, b, 0o600); err != nil {
		return err
	}
	return os.Rename(tmp, filepath.Join(dir, stateFile))
}

// Load reads the state in dir. It returns fs.ErrNotExist if it is missing, errTruncated if it is truncated.
func Load(dir string) (State, error) {
	b, err := os.ReadFile(filepath.Join(dir, stateFile))
	if err != nil {
		return State{}, err
	}
	var s State
	if err := json.Unmarshal(b, &s); err != nil {
		return State{}, fmt.Errorf("%s in %s: %w: %w", stateFile, dir, errTruncated, err)
	}
	return s, nil
}

// Saved returns the state to attach to; its errors are kind.Error.
func Saved(dir, name string, id sandbox.ID) (State, error) {
	s, err := Load(dir)
	if errors.Is(err, fs.ErrNotExist) {
		// A create that was interrupted before it wrote its state has made nothing.
		if err := Remove(dir, stateFile+".tmp"); err != nil {
			return s, kind.Wrap(kind.Internal, "attach", string(id), err)
		}
		return s, kind.New(kind.NotFound, "attach", string(id), "no sandbox here")
	}
	if errors.Is(err, errTruncated) {
		if err := Remove(dir, driver.Files()...); err != nil {
			return s, kind.Wrap(kind.Internal, "attach", string(id), err)
		}
		return s, kind.New(kind.NotFound, "attach", string(id), "the sandbox ended with a loss of power")
	}
	if err != nil {
		return s, kind.Wrap(kind.Internal, "attach", string(id), err)
	}
	if s.Driver != name || s.ID != id {
		return s, kind.Newf(kind.Conflict, "attach", string(id), "the directory belongs to sandbox %s of driver %s", s.ID, s.Driver)
	}
	return s, nil
}

// List returns the sandboxes of the named driver in the directories root/<id>, and those
// whose driver cannot be determined; its errors are kind.Error.
func List(root, name string) ([]sandbox.ID, error) {
	entries, err := os.ReadDir(root)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, kind.Wrap(kind.Internal, "list sandboxes", "", err)
	}
	var ids []sandbox.ID
	for _, e := range entries {
		id, err := sandbox.ParseID(e.Name())
		if err != nil || !e.IsDir() {
			continue
		}
		s, err := Load(filepath.Join(root, e.Name()))
		if err == nil && s.Driver == name || errors.Is(err, errTruncated) {
			ids = append(ids, id)
		}
	}
	return ids, nil
}
