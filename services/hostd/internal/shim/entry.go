package shim

import (
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"google.golang.org/protobuf/encoding/protowire"
)

// The numbers of filesystem.FileType.
const (
	typeFile      = 1
	typeDirectory = 2
	typeSymlink   = 3
)

// entryInfo is the bytes of a filesystem.EntryInfo, written by hand because the
// generated type would double the shim. Of a link it tells type and mode of what
// it points to, as E2B does.
func entryInfo(path string) ([]byte, error) {
	link, err := os.Lstat(path)
	if err != nil {
		return nil, fileError(path, err)
	}
	fi, target := link, ""
	if link.Mode()&fs.ModeSymlink != 0 {
		if to, err := filepath.EvalSymlinks(path); err == nil {
			target = to
			if fi, err = os.Stat(to); err != nil {
				return nil, fileError(path, err)
			}
		}
	}
	var b []byte
	b = appendString(b, 1, filepath.Base(path))
	b = appendUint(b, 2, fileType(fi))
	b = appendString(b, 3, path)
	b = appendUint(b, 4, uint64(fi.Size()))
	b = appendUint(b, 5, uint64(fi.Mode().Perm()))
	b = appendString(b, 6, link.Mode().String())
	if st, ok := link.Sys().(*syscall.Stat_t); ok {
		b = appendString(b, 7, nameOf("/etc/passwd", st.Uid))
		b = appendString(b, 8, nameOf("/etc/group", st.Gid))
	}
	var at []byte
	at = appendUint(at, 1, uint64(link.ModTime().Unix()))
	at = appendUint(at, 2, uint64(link.ModTime().Nanosecond()))
	b = appendString(b, 9, string(at))
	if target != "" {
		b = appendString(b, 10, target)
	}
	return b, nil
}

func fileType(fi os.FileInfo) uint64 {
	switch {
	case fi.Mode().IsRegular():
		return typeFile
	case fi.IsDir():
		return typeDirectory
	case fi.Mode()&fs.ModeSymlink != 0:
		return typeSymlink
	}
	return 0
}

func appendUint(b []byte, num protowire.Number, v uint64) []byte {
	if v == 0 {
		return b
	}
	return protowire.AppendVarint(protowire.AppendTag(b, num, protowire.VarintType), v)
}

func appendString(b []byte, num protowire.Number, v string) []byte {
	return protowire.AppendString(protowire.AppendTag(b, num, protowire.BytesType), v)
}
