package template

import (
	"bytes"
	"encoding/json"
	"path"
	"strings"

	"github.com/millrace/millrace/events/kind"
)

// Manifest is what a template is. It is immutable; its ID is that of its bytes.
type Manifest struct {
	Version int               `json:"version"`           // 1
	Arch    string            `json:"arch"`              // as Go names it; the tree's programs want it
	Env     map[string]string `json:"env,omitempty"`     // of every process
	Workdir string            `json:"workdir,omitempty"` // absolute; empty: the user's home
	User    string            `json:"user,omitempty"`    // who runs what names no user; empty: "user"
	Start   []string          `json:"start,omitempty"`   // the command that the image would run; for people, nobody runs it
	Sudo    bool              `json:"sudo,omitempty"`    // set-uid programs work: User may become root
	Exact   bool              `json:"exact,omitempty"`   // a copy of a host's files, with all that makes them what they are; its parts are stored apart from templates'
	Files   int64             `json:"files"`             // entries of the tree
	Size    int64             `json:"size"`              // bytes of the tree's files, as they are on a disk
	Tar     int64             `json:"tar"`               // bytes of the parts together, which are a tar
	Parts   []Sum             `json:"parts"`             // of the tar: PartSize bytes each but the last
}

const (
	version = 1

	// PartSize is how many bytes of a tree's tar are a part.
	PartSize = 8 << 20
	// MaxTar is the most bytes that a tree's tar may have.
	MaxTar = 64 << 30
	// MaxFiles is the most entries that a tree may have.
	MaxFiles = 4 << 20
	// MaxDepth is how many directories a tree may have in each other.
	MaxDepth = 256
	// MaxManifest is the most bytes of a manifest.
	MaxManifest = 1 << 20
)

// DefaultUser is who runs what names no user in a template that names none.
const DefaultUser = "user"

// Part is how many bytes part i has.
func (m *Manifest) Part(i int) int { return int(min(PartSize, m.Tar-int64(i)*PartSize)) }

// Encode is the manifest as it is stored and summed.
func (m *Manifest) Encode() ([]byte, ID, error) {
	m.Version = version
	if err := m.check(); err != nil {
		return nil, "", err
	}
	b, err := json.Marshal(m) // fields in order, keys of maps sorted
	if err != nil {
		return nil, "", kind.Wrap(kind.Invalid, "encode template", "", err)
	}
	if len(b) > MaxManifest {
		return nil, "", invalid("the manifest has %d bytes, the most is %d", len(b), MaxManifest)
	}
	return b, ID(SumOf(b)), nil
}

// Decode reads what Encode wrote; nothing else has an ID.
func Decode(b []byte) (Manifest, ID, error) {
	var m Manifest
	if len(b) > MaxManifest {
		return m, "", invalid("the manifest has %d bytes, the most is %d", len(b), MaxManifest)
	}
	dec := json.NewDecoder(bytes.NewReader(b))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&m); err != nil {
		return m, "", invalid("the manifest cannot be read: %s", err)
	}
	if m.Version != version {
		return m, "", invalid("a manifest of version %d is not known here", m.Version)
	}
	again, id, err := m.Encode()
	if err == nil && !bytes.Equal(again, b) {
		err = invalid("the manifest is not in its canonical form")
	}
	return m, id, err
}

func (m *Manifest) check() error {
	parts := (m.Tar + PartSize - 1) / PartSize
	switch {
	case m.Arch == "":
		return invalid("it has no arch")
	case m.Tar <= 0 || m.Tar > MaxTar:
		return invalid("its tar has %d bytes, the most is %d", m.Tar, int64(MaxTar))
	case int64(len(m.Parts)) != parts:
		return invalid("it has %d parts, want %d", len(m.Parts), parts)
	case m.Files < 0 || m.Files > MaxFiles || m.Size < 0 || m.Size > MaxTar:
		return invalid("it has %d files of %d bytes", m.Files, m.Size)
	case m.Workdir != "" && (!path.IsAbs(m.Workdir) || path.Clean(m.Workdir) != m.Workdir || strings.ContainsRune(m.Workdir, 0)):
		return invalid("its workdir %q is no clean absolute path", m.Workdir)
	case strings.ContainsAny(m.User, ":/\x00\n ") || strings.HasPrefix(m.User, "-"):
		return invalid("its user %q is no user name", m.User)
	}
	if k, ok := settable(m.Env); !ok {
		return invalid("its variable %q cannot be set", k)
	}
	for _, p := range m.Parts {
		if _, err := ParseSum(string(p)); err != nil {
			return err
		}
	}
	return nil
}

// settable reports whether all can be set as an environment, or names one that
// cannot.
func settable(env map[string]string) (name string, ok bool) {
	for k, v := range env {
		if k == "" || strings.ContainsAny(k, "=\x00") || strings.ContainsRune(v, 0) {
			return k, false
		}
	}
	return "", true
}

func invalid(format string, args ...any) error {
	return kind.Newf(kind.Invalid, "read template", "", format, args...)
}
