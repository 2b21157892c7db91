// Package build is the vocabulary of a template's build: its events and what
// they mean for its state. It does no I/O.
//
// A build's log is part of its record: lines, numbered from 0 in their order.
package build

import (
	"crypto/rand"
	"encoding/hex"
	"strings"
	"time"

	"github.com/millrace/millrace/events/kind"
)

// ID names a build; it is a UUID, as clients of E2B want it.
type ID string

// NewID makes an ID of 122 random bits.
func NewID() ID {
	var b [16]byte
	rand.Read(b[:]) //nolint:errcheck // crypto/rand.Read never fails since Go 1.24
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	return ID(Format(hex.EncodeToString(b[:])))
}

// Format writes 32 or more hexadecimal digits as a UUID of the first 32.
func Format(digits string) string {
	return strings.Join([]string{digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:32]}, "-")
}

// ParseID checks an ID that came from outside.
func ParseID(s string) (ID, error) {
	plain := strings.ReplaceAll(s, "-", "")
	if len(plain) != 32 || strings.Trim(plain, "0123456789abcdef") != "" || Format(plain) != s {
		return "", kind.New(kind.NotFound, "parse build id", "", "build not found")
	}
	return ID(s), nil
}

// The types of steps.
const (
	Copy    = "COPY"    // [source, destination, user, mode]; Files is what is copied
	Run     = "RUN"     // [command, user]
	Env     = "ENV"     // [name, value, name, value...]
	Workdir = "WORKDIR" // [path]
	User    = "USER"    // [name]
)

// Step is one of a build's.
type Step struct {
	Type  string
	Args  []string
	Files string // SHA-256 by which the files were stored; see Log.PutContext
	Force bool   // what was made by the same step before does not count
}

// Spec says what to build. Exactly one of Image and Template is set.
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

// Check says what can never be built; its errors are Invalid.
func (s *Spec) Check() error {
	switch {
	case (s.Image == "") == (s.Template == ""):
		return invalid("exactly one of fromImage and fromTemplate must be given")
	case len(s.Steps) > MaxSteps:
		return invalid("%d steps, the most is %d", len(s.Steps), MaxSteps)
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
		return invalid("type must be COPY, RUN, ENV, WORKDIR or USER, it is %.20q", s.Type)
	}
	switch n := len(s.Args); {
	case n < least || n > most || s.Type == Env && n%2 != 0:
		return invalid("%s cannot have %d arguments", s.Type, n)
	case s.Args[0] == "":
		return invalid("%s has an empty argument", s.Type)
	}
	for i := 0; s.Type == Env && i < len(s.Args); i += 2 {
		if name := s.Args[i]; name == "" || strings.ContainsRune(name, '=') {
			return invalid("ENV: no variable can be called %.80q", name)
		}
	}
	return nil
}

func bad(s string) bool { return len(s) > MaxText || strings.IndexByte(s, 0) >= 0 }

func invalid(format string, args ...any) error {
	return kind.Newf(kind.Invalid, "build", "", format, args...)
}

// Level is how much a line of the log matters.
type Level uint32

// The levels; their numbers are stored.
const (
	Debug Level = iota
	Info
	Warn
	Error
)

// String is the level in E2B's words.
func (l Level) String() string {
	return [...]string{"debug", "info", "warn", "error"}[min(l, Error)]
}

// ParseLevel reads a level; empty is Debug.
func ParseLevel(s string) (Level, error) {
	for l := Debug; l <= Error; l++ {
		if s == l.String() || s == "" {
			return l, nil
		}
	}
	return 0, invalid("level must be debug, info, warn or error")
}

// Line is one of a build's log.
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

// Requested is the first event: somebody wants to build a template. What it is
// made of comes with Started, when its files have been stored.
type Requested struct {
	Template  string // its id
	Name      string
	Tags      []string // that it is to have; never empty
	CPUMilli  uint32   // limits of the sandboxes; 0: none
	MemoryMiB uint32
}

// Started says what is to be done.
type Started struct{ Spec Spec }

// Held says who does it, and that he still does. By is empty when he gives up
// before it is done: somebody else is to go on.
type Held struct{ By string }

// Based says what the build stands on. The names that the Spec has for it may mean
// another template later; who goes on with the build goes on with this one.
type Based struct {
	Template string // an id, or the host's own files
	Snapshot string // a sandbox.SnapshotID; empty: the template's files as they are
	Sum      string // of all that it was made by

	Env     map[string]string // what processes begin with, and what follows
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

// Mark is how far the log goes: up to the event After of the process of Step.
// What it wrote that has no line end yet is Half. Layers are the snapshots that the build
// stands on, or is about to, the newest last: they stay for as long as the mark does.
type Mark struct {
	Step    uint32
	After   uint64
	HalfOut []byte
	HalfErr []byte
	Layers  []string
}

// Finished says that the template is there.
type Finished struct{}

// Failed says that there will be none.
type Failed struct {
	Step    string // "base", the number of a step from 1, "finalize"; empty: none of them
	Message string
}

// Deleted says that the template it was for was deleted, and the build with it.
// Who still does it is fenced.
type Deleted struct{}

func (Requested) kind() string { return "requested" }
func (Started) kind() string   { return "started" }
func (Held) kind() string      { return "held" }
func (Based) kind() string     { return "based" }
func (Logged) kind() string    { return "logged" }
func (Finished) kind() string  { return "finished" }
func (Failed) kind() string    { return "failed" }
func (Deleted) kind() string   { return "deleted" }
