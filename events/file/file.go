package file

import (
	"encoding/binary"
	"errors"
	"io"
	"slices"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/millrace/millrace/events/field"
	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/process"
)

// Op is an operation. The numbers are sent and must not change.
type Op uint8

// The operations.
const (
	OpStat    Op = 1
	OpList    Op = 2
	OpMakeDir Op = 3
	OpMove    Op = 4
	OpRemove  Op = 5
	OpRead    Op = 6
	OpWrite   Op = 7
	OpCompose Op = 8
	OpChange  Op = 9
	OpUnpack  Op = 10
	OpCopy    Op = 11
	OpResolve Op = 12
	OpWalk    Op = 13
	OpHandles Op = 14
	OpAwait   Op = 15
)

// Request is a request for a file operation.
type Request struct {
	Op    Op
	Path  string // absolute, or relative to the user's home
	To    string // destination of a move or a copy; of an await, the path that exists
	User  string // empty: the sandbox's default user
	Depth uint32 // of a list or a walk; of a list 0: 1
	Mode  uint32 // of the created or changed file; 0: unchanged, or 0644, or 0755 for a directory
	Meta  map[string]string

	Sources []string // of a compose: the files to concatenate, in order; of an await, the missing paths
	Force   bool     // accept an existing directory
	Fresh   bool     // a write fails if the file exists
	Single  bool     // nothing above the path is created, and nothing below it copied or removed
	Exists  bool     // a remove fails if the file is missing

	Follow     bool   // a walk enters directories that links lead to
	SkipHidden bool   // a walk does not enter directories whose names begin with a dot
	MaxDirs    uint32 // maximum number of directories that a walk reads
	MaxEntries uint32 // maximum number of entries of a walk

	Confine *process.Confinement // restricts the request further than the sandbox does; nil: not
}

// Limits of a request, in bytes.
const (
	MaxPath    = 4096
	MaxUser    = 256
	MaxMeta    = 4096 // of keys and values
	MaxFrame   = 64 << 10
	MaxSources = 32 << 10 // of all source paths together
	maxRequest = MaxFrame // of an encoded request
	maxMetaKey = 246
)

// ErrMalformed reports bytes that are not a valid frame or request.
var ErrMalformed = kind.New(kind.Invalid, "file", "", "malformed request")

// Check validates a request. Its errors are Invalid.
func (r *Request) Check() error {
	if len(r.Sources) > MaxSources || total(r.Sources) > MaxSources {
		return kind.Newf(kind.Invalid, "file", "", "the sources' paths have more than %d bytes", MaxSources)
	}
	for _, p := range append([]string{r.Path, r.To}, r.Sources...) {
		switch {
		case len(p) > MaxPath:
			return kind.Newf(kind.Invalid, "file", "", "path is longer than %d bytes", MaxPath)
		case hasNUL(p):
			return kind.New(kind.Invalid, "file", "", "path has a NUL byte")
		}
	}
	switch {
	case r.Op < OpStat || r.Op > OpAwait:
		return kind.Newf(kind.Unimplemented, "file", "", "operation %d", r.Op)
	case len(r.User) > MaxUser || hasNUL(r.User):
		return kind.New(kind.Unauthenticated, "file", "", "invalid username")
	}
	if err := r.Confine.Check(); err != nil {
		return err
	}
	if r.Confine != nil && len(r.Append(nil)) > maxRequest {
		return kind.Newf(kind.Invalid, "file", "", "the request has more than %d bytes", maxRequest)
	}
	return CheckMeta(r.Meta)
}

func total(list []string) int {
	n := 0
	for _, s := range list {
		n += len(s)
	}
	return n
}

// CheckMeta validates a file's metadata: keys and values must be printable ASCII.
func CheckMeta(meta map[string]string) error {
	total := 0
	for k, v := range meta {
		total += len(k) + len(v)
		switch {
		case k == "" || len(k) > maxMetaKey:
			return kind.Newf(kind.Invalid, "file", "", "metadata key of %d bytes: want 1 to %d", len(k), maxMetaKey)
		case !printable(k) || !printable(v):
			return kind.Newf(kind.Invalid, "file", "", "metadata %q is not printable ASCII", k)
		}
	}
	if total > MaxMeta {
		return kind.Newf(kind.Invalid, "file", "", "metadata of %d bytes, the limit is %d", total, MaxMeta)
	}
	return nil
}

func printable(s string) bool {
	for i := range len(s) {
		if s[i] < ' ' || s[i] > '~' {
			return false
		}
	}
	return true
}

func hasNUL(s string) bool {
	for i := range len(s) {
		if s[i] == 0 {
			return true
		}
	}
	return false
}

// Append appends the encoding of r. Equal requests have equal encodings.
func (r *Request) Append(b []byte) []byte {
	b = field.AppendUint(b, 1, uint64(r.Op))
	b = field.AppendString(b, 2, r.Path)
	b = field.AppendString(b, 3, r.To)
	b = field.AppendString(b, 4, r.User)
	b = field.AppendUint(b, 5, uint64(r.Depth))
	b = field.AppendUint(b, 6, uint64(r.Mode))
	keys := make([]string, 0, len(r.Meta))
	for k := range r.Meta {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	for _, k := range keys {
		b = field.AppendString(b, 7, k)
		b = field.PutString(b, 8, r.Meta[k])
	}
	for _, p := range r.Sources {
		b = field.PutString(b, 9, p)
	}
	b = field.AppendBool(b, 10, r.Force)
	b = field.AppendBool(b, 11, r.Fresh)
	b = field.AppendBool(b, 12, r.Single)
	b = field.AppendBool(b, 13, r.Exists)
	b = field.AppendBool(b, 14, r.Follow)
	b = field.AppendBool(b, 15, r.SkipHidden)
	b = field.AppendUint(b, 16, uint64(r.MaxDirs))
	b = field.AppendUint(b, 17, uint64(r.MaxEntries))
	return appendConfinement(b, 18, r.Confine)
}

func appendConfinement(b []byte, num protowire.Number, c *process.Confinement) []byte {
	if c == nil {
		return b
	}
	return field.PutMessage(b, num, c.Append)
}

// Parse decodes and validates a request.
func Parse(b []byte) (Request, error) {
	var r Request
	key := ""
	err := field.Each(b, func(num protowire.Number, u uint64, v []byte) (err error) {
		switch num {
		case 1:
			r.Op = Op(min(u, 255))
		case 2:
			r.Path = string(v)
		case 3:
			r.To = string(v)
		case 4:
			r.User = string(v)
		case 5:
			r.Depth = uint32(min(u, 1<<31))
		case 6:
			r.Mode = uint32(u & 0o777)
		case 7:
			key = string(v)
		case 8:
			if r.Meta == nil {
				r.Meta = make(map[string]string)
			}
			r.Meta[key] = string(v)
		case 9:
			r.Sources = append(r.Sources, string(v))
		case 10:
			r.Force = u == 1
		case 11:
			r.Fresh = u == 1
		default:
			err = r.parseLimits(num, u, v)
		}
		return err
	})
	if err != nil {
		return r, ErrMalformed
	}
	return r, r.Check()
}

// parseLimits decodes a field that restricts an operation.
func (r *Request) parseLimits(num protowire.Number, u uint64, v []byte) (err error) {
	switch num {
	case 12:
		r.Single = u == 1
	case 13:
		r.Exists = u == 1
	case 14:
		r.Follow = u == 1
	case 15:
		r.SkipHidden = u == 1
	case 16:
		r.MaxDirs = uint32(min(u, 1<<31))
	case 17:
		r.MaxEntries = uint32(min(u, 1<<31))
	case 18:
		r.Confine, err = process.ParseConfinement(v)
	}
	return err
}

// Range is a part of a file. Length -1 means up to its end.
type Range struct{ Offset, Length int64 }

// Append appends the encoding of r.
func (r Range) Append(b []byte) []byte {
	b = binary.LittleEndian.AppendUint64(b, uint64(r.Offset))
	return binary.LittleEndian.AppendUint64(b, uint64(r.Length))
}

// ParseRange decodes a range.
func ParseRange(b []byte) (Range, error) {
	if len(b) != 16 {
		return Range{}, ErrMalformed
	}
	r := Range{int64(binary.LittleEndian.Uint64(b)), int64(binary.LittleEndian.Uint64(b[8:]))}
	if r.Offset < 0 || r.Length < -1 {
		return Range{}, ErrMalformed
	}
	return r, nil
}

// AppendFrame appends a frame around b.
func AppendFrame(dst, b []byte) []byte {
	dst = binary.LittleEndian.AppendUint32(dst, uint32(len(b)))
	return append(dst, b...)
}

// ReadFrame reads a frame into buf, which it grows as needed. It returns io.EOF if the
// stream ends between two frames.
func ReadFrame(r io.Reader, buf []byte) ([]byte, error) {
	var head [4]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return buf, err
	}
	n := int(binary.LittleEndian.Uint32(head[:]))
	if n > MaxFrame {
		return buf, ErrMalformed
	}
	if cap(buf) < n {
		buf = make([]byte, n)
	}
	buf = buf[:n]
	_, err := io.ReadFull(r, buf)
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	return buf, err
}
