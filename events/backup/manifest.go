package backup

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/oklog/ulid/v2"

	"github.com/millrace/millrace/events/kind"
)

const (
	manifestName = "manifest"
	magic        = "millrace-backup 1 "
	maxManifest  = 64 << 20
)

// Manifest describes one backup: what a restore needs, also from the backups before it.
type Manifest struct {
	ID      string    `json:"id"`
	Version string    `json:"version"` // of the program
	Began   time.Time `json:"began"`
	Ended   time.Time `json:"ended"`
	Streams []Stream  `json:"streams"` // in the order in which they were read
}

// Stream is a stream of a backup.
type Stream struct {
	Config    jetstream.StreamConfig `json:"config"`
	Created   time.Time              `json:"created"`
	FirstSeq  uint64                 `json:"first_seq"`
	LastSeq   uint64                 `json:"last_seq"`
	LastTime  time.Time              `json:"last_time,omitzero"` // of the last message that was read
	LastRead  uint64                 `json:"last_read,omitempty"`
	Messages  uint64                 `json:"messages"`             // in the stream when the read began
	Parts     []Part                 `json:"parts,omitempty"`      // oldest first
	Live      *Part                  `json:"live,omitempty"`       // subjects with their number of messages; nil: all messages of the parts count
	LiveUntil uint64                 `json:"live_until,omitempty"` // last sequence that Live covers
}

// Part is a file of a backup.
type Part struct {
	Backup   string `json:"backup"` // that has the file
	File     string `json:"file"`
	Bytes    int64  `json:"bytes"`
	SHA256   string `json:"sha256"`
	Messages uint64 `json:"messages"`
	Payload  uint64 `json:"payload"` // bytes of subjects, headers and payloads
}

func (p *Part) name() string { return p.Backup + "/" + p.File }

func (m *Manifest) stream(name string) *Stream {
	for i := range m.Streams {
		if m.Streams[i].Config.Name == name {
			return &m.Streams[i]
		}
	}
	return nil
}

// write stores the manifest at once.
func (m *Manifest) write(dir string, k *Key) error {
	text, err := json.Marshal(m)
	if err != nil {
		return err
	}
	var out bytes.Buffer
	fmt.Fprintf(&out, "%s%s\n", magic, k.ID())
	w, err := k.seal(&out, m.ID+"/"+manifestName)
	if err != nil {
		return err
	}
	if _, err := w.Write(text); err != nil {
		return err
	}
	if err := w.Close(); err != nil {
		return err
	}
	path := filepath.Join(dir, m.ID, manifestName)
	if err := writeFile(path+".tmp", out.Bytes()); err != nil {
		return err
	}
	if err := errors.Join(syncDir(filepath.Join(dir, m.ID)), os.Rename(path+".tmp", path)); err != nil {
		return err
	}
	return errors.Join(syncDir(filepath.Join(dir, m.ID)), syncDir(dir))
}

// ReadManifest reads and authenticates the manifest of a backup in a directory; id is empty for the
// newest backup.
func ReadManifest(dir, id string, k *Key) (*Manifest, error) {
	if id == "" {
		all, err := complete(dir)
		if err != nil {
			return nil, err
		}
		if len(all) == 0 {
			return nil, kind.Newf(kind.NotFound, "read backup", "", "%s has no complete backup", dir)
		}
		id = all[len(all)-1]
	}
	if _, err := ulid.ParseStrict(strings.ToUpper(id)); err != nil || id != strings.ToLower(id) {
		return nil, kind.New(kind.Invalid, "read backup", "", "the id of a backup is the name of its directory, 26 characters")
	}
	name := id + "/" + manifestName
	text, err := os.ReadFile(filepath.Join(dir, id, manifestName))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, missing(name)
	}
	if err != nil {
		return nil, kind.Wrap(kind.Precondition, "read backup", name, err)
	}
	head, sealed, ok := bytes.Cut(text, []byte("\n"))
	keyID, found := strings.CutPrefix(string(head), magic)
	if !ok || !found {
		return nil, damaged(name, errors.New("not a manifest"))
	}
	if keyID != k.ID() {
		return nil, wrongKey(keyID, k.ID())
	}
	plain, err := k.open(bytes.NewReader(sealed), name)
	if err != nil {
		return nil, damaged(name, err)
	}
	m := &Manifest{}
	if err := json.NewDecoder(io.LimitReader(plain, maxManifest)).Decode(m); err != nil {
		return nil, damaged(name, err)
	}
	if m.ID != id {
		return nil, damaged(name, fmt.Errorf("it is the manifest of %s", m.ID))
	}
	return m, nil
}

// complete returns the ids of the complete backups in a directory, oldest first.
func complete(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, kind.Newf(kind.NotFound, "read backup", "", "%v", err)
	}
	var all []string
	for _, e := range entries {
		if _, err := os.Stat(filepath.Join(dir, e.Name(), manifestName)); err == nil {
			all = append(all, e.Name())
		}
	}
	slices.Sort(all) // ULIDs: by time
	return all, nil
}

// removeCut removes what backups left that were cut.
func removeCut(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		_, err := ulid.ParseStrict(strings.ToUpper(e.Name()))
		if err != nil || !e.IsDir() {
			continue
		}
		if _, err := os.Stat(filepath.Join(dir, e.Name(), manifestName)); !errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err := os.RemoveAll(filepath.Join(dir, e.Name())); err != nil {
			return err
		}
	}
	return nil
}

func writeFile(path string, text []byte) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	return errors.Join(err, f.Sync(), f.Close())
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
