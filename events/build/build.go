// Package build is the vocabulary of a template's build: its events ([Body]) and their meaning
// for its [State]. It does no I/O.
//
// A build's log is part of its record: lines, numbered from 0 in order.
package build

import (
	"crypto/rand"
	"encoding/hex"
	"strings"
	"time"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/seal"
)

// ID identifies a build. It is a UUID, as E2B clients require.
type ID string

// NewID returns an ID of 122 random bits.
func NewID() ID {
	var b [16]byte
	rand.Read(b[:])
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	return ID(Format(hex.EncodeToString(b[:])))
}

// Format formats the first 32 of at least 32 hexadecimal digits as a UUID.
func Format(digits string) string {
	return strings.Join([]string{digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:32]}, "-")
}

// ParseID validates an ID from outside.
func ParseID(s string) (ID, error) {
	plain := strings.ReplaceAll(s, "-", "")
	if len(plain) != 32 || strings.Trim(plain, "0123456789abcdef") != "" || Format(plain) != s {
		return "", kind.New(kind.NotFound, "parse build id", "", "build not found")
	}
	return ID(s), nil
}

// The types of steps.
const (
	Copy    = "COPY"    // [source, destination, user, mode]; Files identifies the files to copy
	Run     = "RUN"     // [command, user]
	Env     = "ENV"     // [name, value, name, value...]
	Workdir = "WORKDIR" // [path]
	User    = "USER"    // [name]
)

// Step is one step of a build.
type Step struct {
	Type   string
	Args   []string
	Sealed seal.Text // Args of ENV in records; see [Spec.Seal]
	Files  string    // SHA-256 under which the files were stored; see Log.PutContext
	Force  bool      // ignore the cached result of the step
}

// Spec describes what to build. Exactly one of Image and Template is set.
type Spec struct {
	Image       string
	Template    string
	Credentials []byte // for Image's registry, sealed
	Steps       []Step
	Start       string
	Ready       string
	Force       bool
}

// Limits of a Spec.
const (
	MaxSteps = 1000
	MaxText  = 256 << 10 // bytes of an argument or a command
)

// Check validates a spec. Its errors are Invalid.
func (s *Spec) Check() error {
	switch {
	case (s.Image == "") == (s.Template == ""):
		return invalid("exactly one of fromImage and fromTemplate must be given")
	case len(s.Steps) > MaxSteps:
		return invalid("%d steps, the limit is %d", len(s.Steps), MaxSteps)
	case bad(s.Image) || bad(s.Template) || bad(s.Start) || bad(s.Ready):
		return invalid("fromImage, fromTemplate, startCmd or readyCmd is too long, or has a NUL byte")
	}
	for i := range s.Steps {
		if err := s.Steps[i].check(); err != nil {
			return kind.Newf(kind.Invalid, "build", "", "step %d: %s", i+1, kind.Message(err))
		}
	}
	return nil
}

func (s *Step) check() error {
	for _, a := range s.Args {
		if bad(a) {
			return invalid("an argument of %s is too long, or has a NUL byte", s.Type)
		}
	}
	least, most := 1, 1
	switch s.Type {
	case Copy:
		least, most = 2, 4
		if len(s.Files) != 64 || strings.Trim(s.Files, "0123456789abcdef") != "" {
			return invalid("COPY: filesHash must be 64 hexadecimal digits")
		}
	case Run:
		most = 2
	case Env:
		least, most = 2, MaxSteps
	case Workdir, User:
	default:
		return invalid("type must be COPY, RUN, ENV, WORKDIR or USER, not %.20q", s.Type)
	}
	switch n := len(s.Args); {
	case n < least || n > most || s.Type == Env && n%2 != 0:
		return invalid("%s cannot have %d arguments", s.Type, n)
	case s.Args[0] == "":
		return invalid("%s has an empty argument", s.Type)
	}
	for i := 0; s.Type == Env && i < len(s.Args); i += 2 {
		if name := s.Args[i]; name == "" || strings.ContainsRune(name, '=') {
			return invalid("ENV: %.80q is not a valid variable name", name)
		}
	}
	return nil
}

func bad(s string) bool { return len(s) > MaxText || strings.IndexByte(s, 0) >= 0 }

func invalid(format string, args ...any) error {
	return kind.Newf(kind.Invalid, "build", "", format, args...)
}

// Level is the severity of a line in the log.
type Level uint32

// The levels; their numbers are stored.
const (
	Debug Level = iota
	Info
	Warn
	Error
)

// String returns the level's name in E2B's API.
func (l Level) String() string {
	return [...]string{"debug", "info", "warn", "error"}[min(l, Error)]
}

// ParseLevel parses a level; empty is Debug.
func ParseLevel(s string) (Level, error) {
	for l := Debug; l <= Error; l++ {
		if s == l.String() || s == "" {
			return l, nil
		}
	}
	return 0, invalid("level must be debug, info, warn or error")
}

// Line is one line of a build's log.
type Line struct {
	Time  time.Time
	Level Level
	Text  string
}

// Event is one fact of a build's record. Seq is dense from 1.
type Event struct {
	Seq  uint64
	Time time.Time
	Body Body
}

// Body is one of Requested, Started, Held, Based, Logged, Finished, Failed or Deleted.
//
//sumtype:decl
type Body interface{ kind() string }

// Requested is the first event: a client requested a build of a template. Its spec follows
// with Started, once its files have been stored.
type Requested struct {
	Template  string   // its id
	Name      string   // ID of the template
	Tags      []string // tags for the result; never empty
	CPUMilli  uint32   // limits of the sandboxes; 0: none
	MemoryMiB uint32
}

// Started is the spec of the build.
type Started struct{ Spec Spec }

// Claimed reports which worker runs the build, and that it still does. By is empty if a worker
// gives up before the end: another one continues.
type Claimed struct{ By string }

// Based is the base of the build. The names in the Spec may later refer to another
// template; a worker that continues the build keeps this one.
type Based struct {
	Template string // an id, or the host's own files
	Snapshot string // a sandbox.SnapshotID; empty: the template's files unchanged
	Sum      string // of all inputs

	Env     map[string]string // defaults of processes, as are the fields below; not stored
	Sealed  seal.Text         // Env in records; see [Based.Seal]
	User    string            // empty: the template's
	Workdir string            // empty: the template's
	Start   string
	Ready   string
}

// Logged adds lines to the log.
type Logged struct {
	Lines []Line
	Mark  Mark
}

// Mark is how far the log goes: up to the event After of the process of Step. PartialOut and
// PartialErr are that process's partial last lines. Layers are the snapshots on which the
// build is, or will be, based, the newest last: they are kept as long as the mark is.
type Mark struct {
	Step       uint32
	After      uint64
	PartialOut []byte
	PartialErr []byte
	Layers     []string
}

// Finished reports that the template is complete.
type Finished struct{}

// Failed reports that the build failed.
type Failed struct {
	Step    string // "base", the number of a step from 1, "finalize"; empty: none
	Message string
}

// Deleted reports that the template was deleted, and the build with it. A worker that still
// runs it is fenced.
type Deleted struct{}

func (Requested) kind() string { return "requested" }
func (Started) kind() string   { return "started" }
func (Claimed) kind() string   { return "held" }
func (Based) kind() string     { return "based" }
func (Logged) kind() string    { return "logged" }
func (Finished) kind() string  { return "finished" }
func (Failed) kind() string    { return "failed" }
func (Deleted) kind() string   { return "deleted" }
