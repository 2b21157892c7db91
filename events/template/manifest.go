package template

import (
	"bytes"
	"encoding/json"
	"path"
	"strings"

	"github.com/millrace/millrace/events/kind"
)

// Manifest describes a template. It is immutable; its ID is derived from its bytes.
type Manifest struct {
	Version  int               `json:"version"`            // 1
	Arch     string            `json:"arch"`               // GOARCH of the tree's programs
	Env      map[string]string `json:"env,omitempty"`      // of every process
	Workdir  string            `json:"workdir,omitempty"`  // absolute; empty: the user's home
	User     string            `json:"user,omitempty"`     // default user of processes; empty: "user"
	Start    []string          `json:"start,omitempty"`    // the image's command; for display only
	Services []Service         `json:"services,omitempty"` // servers that clients may request by name
	Sudo     bool              `json:"sudo,omitempty"`     // set-uid programs work: User may become root
	Exact    bool              `json:"exact,omitempty"`    // an exact copy of a host's files; its parts are stored apart from templates'
	Files    int64             `json:"files"`              // entries of the tree
	Size     int64             `json:"size"`               // bytes of the tree's files on disk
	Tar      int64             `json:"tar"`                // bytes of the parts together, which form a tar
	Parts    []Sum             `json:"parts"`              // of the tar: PartSize bytes each except the last
}

const (
	version = 1

	// PartSize is the number of bytes in a part.
	PartSize = 8 << 20
	// MaxTar is the maximum number of bytes in a tree's tar.
	MaxTar = 64 << 30
	// MaxFiles is the maximum number of entries in a tree.
	MaxFiles = 4 << 20
	// MaxDepth is the maximum depth of a tree.
	MaxDepth = 256
	// MaxManifest is the maximum number of bytes in a manifest.
	MaxManifest = 1 << 20
)

// DefaultUser is the default user of a template without User.
const DefaultUser = "user"

// Part returns the number of bytes in part i.
func (m *Manifest) Part(i int) int { return int(min(PartSize, m.Tar-int64(i)*PartSize)) }

// Encode returns the canonical encoding of the manifest, and its ID.
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
		return nil, "", invalid("the manifest has %d bytes, the limit is %d", len(b), MaxManifest)
	}
	return b, ID(SumOf(b)), nil
}

// Decode decodes a manifest in its canonical encoding, and rejects any other.
func Decode(b []byte) (Manifest, ID, error) {
	var m Manifest
	if len(b) > MaxManifest {
		return m, "", invalid("the manifest has %d bytes, the limit is %d", len(b), MaxManifest)
	}
	dec := json.NewDecoder(bytes.NewReader(b))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&m); err != nil {
		return m, "", invalid("the manifest cannot be read: %s", err)
	}
	if m.Version != version {
		return m, "", invalid("manifest version %d is not supported", m.Version)
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
		return invalid("arch is missing")
	case m.Tar <= 0 || m.Tar > MaxTar:
		return invalid("its tar has %d bytes, the limit is %d", m.Tar, int64(MaxTar))
	case int64(len(m.Parts)) != parts:
		return invalid("it has %d parts, want %d", len(m.Parts), parts)
	case m.Files < 0 || m.Files > MaxFiles || m.Size < 0 || m.Size > MaxTar:
		return invalid("it has %d files of %d bytes", m.Files, m.Size)
	case m.Workdir != "" && (!path.IsAbs(m.Workdir) || path.Clean(m.Workdir) != m.Workdir || strings.ContainsRune(m.Workdir, 0)):
		return invalid("its workdir %q must be a clean absolute path", m.Workdir)
	case strings.ContainsAny(m.User, ":/\x00\n ") || strings.HasPrefix(m.User, "-"):
		return invalid("its user %q is not a valid user name", m.User)
	}
	if err := checkServices(m.Services); err != nil {
		return err
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

// settable reports whether env can be set as an environment, or returns the name of a
// variable that cannot.
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
