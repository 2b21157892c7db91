// Package live is what drivers share about a running shim: the state file that
// outlives hostd, the shim's socket, and the watch over a process that need not
// be our child.
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

// ErrGone says that the process of a State no longer lives.
var ErrGone = errors.New("the shim is gone")

// errUseless says that a state was cut off with its machine's power, as it is not synced:
// a kill leaves a whole one. Nothing that it may have named lives.
var errUseless = errors.New("it is of no use")

// State is what must be known to find a sandbox again. It is written before the
// first thing it names is made, so that a host cut off at any point leaves
// nothing unnamed.
type State struct {
	Driver  string     `json:"driver"`
	ID      sandbox.ID `json:"id"`
	PID     int        `json:"pid,omitempty"`   // 0: the shim has not been started yet
	Start   uint64     `json:"start,omitempty"` // its start in clock ticks since boot: tells it from a later process with its pid
	Boot    string     `json:"boot"`            // the kernel's boot id
	UIDBase uint32     `json:"uid_base,omitempty"`
	Cgroups []string   `json:"cgroups,omitempty"` // directories
	From    string     `json:"from,omitempty"`    // the snapshot that it was made from, if it still needs it
	Disk    string     `json:"disk,omitempty"`    // the loop device of its disk
	Etc     string     `json:"etc,omitempty"`     // the copy of the host's /etc that it sees
	Tree    bool       `json:"tree,omitempty"`    // it was made from a template's tree
	Dataset string     `json:"dataset,omitempty"` // of ZFS
}

// Save writes s into dir atomically. It is not synced: what it names does not
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

// Load reads the state in dir; fs.ErrNotExist if there is none, errUseless if it is cut off.
func Load(dir string) (State, error) {
	b, err := os.ReadFile(filepath.Join(dir, stateFile))
	if err != nil {
		return State{}, err
	}
	var s State
	if err := json.Unmarshal(b, &s); err != nil {
		return State{}, fmt.Errorf("%s in %s: %w: %w", stateFile, dir, errUseless, err)
	}
	return s, nil
}

// Saved is the state that a driver attaches to; its errors are kind.Error.
func Saved(dir, name string, id sandbox.ID) (State, error) {
	s, err := Load(dir)
	if errors.Is(err, fs.ErrNotExist) {
		// One who was cut off before he had named anything has made nothing.
		if err := Remove(dir, stateFile+".tmp"); err != nil {
			return s, kind.Wrap(kind.Internal, "attach", string(id), err)
		}
		return s, kind.New(kind.NotFound, "attach", string(id), "no sandbox here")
	}
	if errors.Is(err, errUseless) {
		if err := Remove(dir, driver.Files()...); err != nil {
			return s, kind.Wrap(kind.Internal, "attach", string(id), err)
		}
		return s, kind.New(kind.NotFound, "attach", string(id), "the sandbox ended with its machine")
	}
	if err != nil {
		return s, kind.Wrap(kind.Internal, "attach", string(id), err)
	}
	if s.Driver != name || s.ID != id {
		return s, kind.Newf(kind.Conflict, "attach", string(id), "the directory is that of %s and driver %s", s.ID, s.Driver)
	}
	return s, nil
}

// List names the sandboxes of the driver name in the directories root/<id>, and those of which
// nobody can say whose they were; its errors are kind.Error.
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
		if err == nil && s.Driver == name || errors.Is(err, errUseless) {
			ids = append(ids, id)
		}
	}
	return ids, nil
}
