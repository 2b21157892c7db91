//go:build linux

package nsinit

import (
	"encoding/binary"
	"errors"
	"io"
)

// Spec is what the driver sends its child, which it starts in the sandbox's own
// directory on the host's disk.
type Spec struct {
	EtcLower string   // host directory below /etc
	EtcDirs  []string // directories in it, parents first, which belong to the sandbox's first user
	UsrDirs  []string // directories below /usr that the sandbox's first user may write to, parents first
	Binds    []string // top-level directories of the host, mounted read-only
	Links    []Text   // top-level symbolic links
	Files    []File   // initial files; with a template's tree, in /etc only

	Tree string // host directory with a template's tree; if not empty, of the fields above only Files is used
	Sudo bool   // set-uid programs in Tree or /usr work, where HasRoot

	Below  string // host directory with the layers of a snapshot, named by numbers from 0; empty: none
	Layers uint32 // number of layers; the last one is the uppermost
	Disk   bool   // whether the sandbox writes to a disk of its own instead of the working directory

	Volumes []Text // host directories to mount: Name is the path inside, Body the host's

	Program Program // executed instead of the shim and all above; see program.go

	Hostname string
	HasRoot  bool // whether the sandbox has a uid range and starts as its root; otherwise its only user is uid 1000
	ShmMiB   uint32
	Limits   []Limit

	Argv, Env []string
	KeepGroup bool // whether descriptors 4 and 5 are for the shim
	Trial     bool // whether to stop where the shim would be executed

	volumes []int // mounts of Volumes
}

// Program is a program of the host's.
type Program struct {
	Path           string   // empty: none
	Shown          []string // host files and directories that are visible to it
	Device         string   // path of a device that it uses; empty: none
	Keep           uint32   // number of descriptors from FirstKept on that it inherits
	DiesWithParent bool     // whether it dies with the thread of hostd's that started its launcher
}

// File is a file by its path from the root.
type File struct {
	Name, Body string
	Mode       uint32 // 0: 0644
	Owner      uint32 // user and group
}

// Text is a name and its value.
type Text struct{ Name, Body string }

// Limit is a resource limit: Max is the soft one, and the hard one is Spare above it.
// Values above the inherited hard limit mean that limit.
type Limit struct {
	Resource   uint32
	Max, Spare uint64
}

const maxSpec = 16 << 20

var errSpec = errors.New("truncated spec")

// Append appends s in the form that Init reads: a length, then the fields in order.
func (s *Spec) Append(b []byte) []byte {
	at := len(b)
	c := coder{b: append(b, 0, 0, 0, 0)}
	s.code(&c)
	binary.LittleEndian.PutUint32(c.b[at:], uint32(len(c.b)-at-4))
	return c.b
}

// readSpec reads what Append wrote.
func readSpec(r io.Reader) (*Spec, error) {
	var head [4]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return nil, err
	}
	n := binary.LittleEndian.Uint32(head[:])
	if n > maxSpec {
		return nil, errSpec
	}
	c := coder{read: true, b: make([]byte, n)}
	if _, err := io.ReadFull(r, c.b); err != nil {
		return nil, err
	}
	var s Spec
	if s.code(&c); c.bad || len(c.b) > 0 {
		return nil, errSpec
	}
	return &s, nil
}

// code reads or writes every field, so that the two cannot disagree.
func (s *Spec) code(c *coder) {
	c.str(&s.EtcLower)
	c.strs(&s.EtcDirs)
	c.strs(&s.UsrDirs)
	c.strs(&s.Binds)
	c.texts(&s.Links)
	c.files(&s.Files)
	c.str(&s.Tree)
	c.flag(&s.Sudo)
	c.str(&s.Below)
	c.num32(&s.Layers)
	c.flag(&s.Disk)
	c.texts(&s.Volumes)
	c.str(&s.Program.Path)
	c.strs(&s.Program.Shown)
	c.str(&s.Program.Device)
	c.num32(&s.Program.Keep)
	c.flag(&s.Program.DiesWithParent)
	c.str(&s.Hostname)
	c.flag(&s.HasRoot)
	c.num32(&s.ShmMiB)
	n := c.count(len(s.Limits))
	if c.read {
		s.Limits = make([]Limit, n)
	}
	for i := range s.Limits {
		c.num32(&s.Limits[i].Resource)
		c.num(&s.Limits[i].Max)
		c.num(&s.Limits[i].Spare)
	}
	c.strs(&s.Argv)
	c.strs(&s.Env)
	c.flag(&s.KeepGroup)
	c.flag(&s.Trial)
}

// coder writes to the end of b, or reads from its beginning. After bad is set, it reads
// zero values.
type coder struct {
	b    []byte
	read bool
	bad  bool
}

func (c *coder) num(n *uint64) {
	if !c.read {
		c.b = binary.AppendUvarint(c.b, *n)
		return
	}
	v, k := binary.Uvarint(c.b)
	if k <= 0 {
		v, k, c.bad, c.b = 0, 0, true, nil
	}
	*n, c.b = v, c.b[k:]
}

func (c *coder) num32(n *uint32) {
	v := uint64(*n)
	c.num(&v)
	*n = uint32(v)
}

func (c *coder) flag(f *bool) {
	var n uint64
	if *f {
		n = 1
	}
	c.num(&n)
	*f = n == 1
}

// count codes a length; an impossible one is read as 0.
func (c *coder) count(n int) int {
	v := uint64(n)
	c.num(&v)
	if c.read && v > uint64(len(c.b)) {
		c.bad = true
		return 0
	}
	return int(v)
}

func (c *coder) str(s *string) {
	n := c.count(len(*s))
	if !c.read {
		c.b = append(c.b, *s...)
		return
	}
	*s, c.b = string(c.b[:n]), c.b[n:]
}

func (c *coder) strs(l *[]string) {
	n := c.count(len(*l))
	if c.read {
		*l = make([]string, n)
	}
	for i := range *l {
		c.str(&(*l)[i])
	}
}

func (c *coder) texts(l *[]Text) {
	n := c.count(len(*l))
	if c.read {
		*l = make([]Text, n)
	}
	for i := range *l {
		c.str(&(*l)[i].Name)
		c.str(&(*l)[i].Body)
	}
}

func (c *coder) files(l *[]File) {
	n := c.count(len(*l))
	if c.read {
		*l = make([]File, n)
	}
	for i := range *l {
		c.str(&(*l)[i].Name)
		c.str(&(*l)[i].Body)
		c.num32(&(*l)[i].Mode)
		c.num32(&(*l)[i].Owner)
	}
}
