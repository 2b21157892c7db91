package sandbox

import (
	"path"
	"slices"
	"strings"
	"time"

	"github.com/millrace/millrace/events/kind"
)

// VolumeID identifies a volume: "v" and 20 of [a-z0-9]. It is a directory name, so ids from
// outside must be parsed.
type VolumeID string

const volumePrefix = 'v'

// NewVolumeID returns an id of 103 random bits.
func NewVolumeID() VolumeID { return VolumeID(newID(volumePrefix)) }

// ParseVolumeID validates an id from outside.
func ParseVolumeID(s string) (VolumeID, error) {
	id, err := ParseID(strings.Clone(s))
	if err != nil || len(s) != newIDLen || s[0] != volumePrefix {
		return "", kind.New(kind.NotFound, "parse volume id", "", "volume not found")
	}
	return VolumeID(id), nil
}

// Volume is a directory that outlives sandboxes and that several can share.
//
// # Location
// Its files are on one host's disk only. Sandboxes that use it are placed there, and while
// that host is down the volume is unavailable, which every call reports. A host never
// recreates a volume that it once had: if the files are missing from its disk, that is an
// error, not an empty directory. A volume is as durable as that disk and has no size limit.
// If it fills the disk, its sandboxes are evicted.
type Volume struct {
	ID      VolumeID
	Tenant  string
	Name    string // unique among the tenant's volumes
	Host    string // the host of its files
	Created time.Time
	Made    bool // its host has created the directory
	Deleted bool // deleted for clients; its host removes the files, and resets Made, once no sandbox uses them
	Rev     uint64
	Changed time.Time // time of the last change of its record
}

// Over reports whether only its record is left.
func (v *Volume) Over() bool { return v.Deleted && !v.Made }

// Mount is the path of a volume in a sandbox.
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

// CheckVolumeName validates a volume's name, which is a token of a subject.
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

// CheckMounts validates the paths of volumes: each must be absolute, clean, used once, and
// not one that a sandbox needs.
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
			return kind.Newf(kind.Invalid, "check mounts", "", "%q: the path of a volume mount must be absolute and clean", p)
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

// needed reports whether a sandbox needs the files at a path.
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

// ByDepth returns the mounts in an order in which they can be mounted: parents first.
func ByDepth(mounts []Mount) []Mount {
	out := slices.Clone(mounts)
	slices.SortFunc(out, func(a, b Mount) int { return strings.Compare(a.Path, b.Path) })
	return out
}
