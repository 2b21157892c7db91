package sandbox

import (
	"path"
	"slices"
	"strings"
	"time"

	"github.com/millrace/millrace/events/kind"
)

// VolumeID names a volume: "v" and 20 of [a-z0-9]. It is a name of a directory,
// so that what comes from outside is parsed.
type VolumeID string

const volumePrefix = 'v'

// NewVolumeID makes an id of 103 random bits.
func NewVolumeID() VolumeID { return VolumeID(newID(volumePrefix)) }

// ParseVolumeID checks an id that came from outside.
func ParseVolumeID(s string) (VolumeID, error) {
	id, err := ParseID(strings.Clone(s))
	if err != nil || len(s) != newIDLen || s[0] != volumePrefix {
		return "", kind.New(kind.NotFound, "parse volume id", "", "volume not found")
	}
	return VolumeID(id), nil
}

// Volume is a directory that outlives sandboxes, and that several may see at once.
//
// # Where it is
// Its files are on one host's disk, and nowhere else: sandboxes that use it are
// placed there, and while that host is away it cannot be used, which every call
// says. A host never makes a volume anew that it once had: one whose files are
// gone from its disk is an error, not an empty directory. It is as safe as that
// disk, and has no bound of its own; where it fills the disk, those who see it are ended.
type Volume struct {
	ID      VolumeID
	Tenant  string
	Name    string // that no other volume of the tenant has
	Host    string // that has its files
	Created time.Time
	Made    bool // its host has its directory
	Deleted bool // it is gone for clients; its host removes the files once no sandbox uses them, and then it is not made
	Rev     uint64
	Changed time.Time // when its record was
}

// Over reports whether nothing is left of it but its record.
func (v *Volume) Over() bool { return v.Deleted && !v.Made }

// Mount says where in a sandbox a volume is seen.
type Mount struct {
	Volume VolumeID
	Name   string
	Path   string // absolute and clean
}

const (
	maxVolumeName = 128
	maxMounts     = 16
	maxMountPath  = 1024
	maxPathName   = 255
)

// CheckVolumeName says whether a volume may be called so; its name is a token of a
// subject.
func CheckVolumeName(s string) error {
	ok := len(s) > 0 && len(s) <= maxVolumeName
	for i := 0; ok && i < len(s); i++ {
		c := s[i]
		ok = c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '-' || c == '_'
	}
	if !ok {
		return kind.Newf(kind.Invalid, "parse volume name", "", "a volume's name is 1 to %d letters, digits, - and _", maxVolumeName)
	}
	return nil
}

// CheckMounts says what is wrong with where volumes are to be seen: each path is
// absolute, clean, of no other mount, and none that a sandbox cannot be without.
func CheckMounts(mounts []Mount) error {
	if len(mounts) > maxMounts {
		return kind.Newf(kind.Invalid, "check mounts", "", "more than %d volumeMounts", maxMounts)
	}
	seen := make(map[string]bool)
	for _, m := range mounts {
		p := m.Path
		switch {
		case len(p) > maxMountPath || strings.IndexByte(p, 0) >= 0:
			return kind.Newf(kind.Invalid, "check mounts", "", "the path of a volume mount has a NUL or more than %d bytes", maxMountPath)
		case !strings.HasPrefix(p, "/") || path.Clean(p) != p:
			return kind.Newf(kind.Invalid, "check mounts", "", "%q: the path of a volume mount is absolute and clean", p)
		case slices.ContainsFunc(strings.Split(p, "/"), func(name string) bool { return len(name) > maxPathName }):
			return kind.Newf(kind.Invalid, "check mounts", "", "the path of a volume mount has a name of more than %d bytes", maxPathName)
		case needed(p):
			return kind.Newf(kind.Invalid, "check mounts", "", "%q: no volume can be mounted there", p)
		case seen[p]:
			return kind.Newf(kind.Invalid, "check mounts", "", "%q: two volumes cannot be mounted there", p)
		}
		seen[p] = true
	}
	return nil
}

// needed reports whether a sandbox needs what is at a path.
func needed(p string) bool {
	first, below, _ := strings.Cut(p[1:], "/")
	switch first {
	case "", "proc", "sys", "dev":
		return true
	case "usr":
		return below == "" || needed("/"+below) && !strings.Contains(below, "/")
	case "bin", "sbin", "lib", "lib32", "lib64", "libx32", "etc", "run", "var", "boot":
		return below == ""
	}
	return false
}

// ByDepth gives mounts in an order in which they can be made: a path before those
// in it.
func ByDepth(mounts []Mount) []Mount {
	out := slices.Clone(mounts)
	slices.SortFunc(out, func(a, b Mount) int { return strings.Compare(a.Path, b.Path) })
	return out
}
