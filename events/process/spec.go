package process

import (
	"time"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/redact"
	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/events/seal"
)

// Size is the size of a terminal in characters.
type Size struct{ Cols, Rows uint32 }

// Spec is a command to run. The zero value of a field is its default.
type Spec struct {
	Cmd     string
	Args    []string
	Env     map[string]string // on top of the sandbox's environment; not stored
	Sealed  seal.Text         // Env in commands and the catalog; see [Spec.Seal]
	Cwd     string            // empty: the user's home
	User    string            // empty: the sandbox's default user
	PTY     *Size             // nil: pipes
	Stdin   bool              // false: closed from the start
	Tag     *string
	Timeout time.Duration // 0: none; after it the group is killed with CauseTimeout
	Helper  bool          // started by the platform itself: not counted as a command

	// Exact makes Env the whole environment of the process: it gets no variable of its sandbox
	// or user, whose PATH is only used to find the program. A program that cannot be executed
	// is a Failed, not a shell that prints the reason and exits with 127.
	Exact bool
	Arg0  *string // the program's name for itself, argv[0]; nil: Cmd

	Confine *Confinement // nil: restricted by its sandbox only

	// UntilEOF keeps the record open after the exit for as long as another process has its
	// pipes open, however long that is silent. Without it, after SIGKILL, and for a process with
	// a terminal, the record ends after a silence.
	UntilEOF bool

	Trace *Trace // nil: the request that started it belongs to no trace

	Record sandbox.Policy // what is kept of it
	Redact []string       // patterns of what is replaced in its output (package redact); not stored

	// Hidden is the whole Spec in a command whose other fields are those of Public; see
	// [Spec.Seal].
	Hidden seal.Text
}

// Limits of a Spec. The limits of exec (E2BIG) apply, too.
const (
	MaxArgs     = 16 << 10
	MaxSpecSize = 1 << 20 // bytes, encoded
	MaxWindow   = 1 << 14 // columns or rows
	MaxPath     = 4 << 10 // bytes of a directory, and of a user's name
)

// Validate returns an error of kind.Invalid if s can never run.
func (s *Spec) Validate() error {
	switch {
	case s.Cmd == "":
		return kind.New(kind.Invalid, "start", "", "process.cmd is required")
	case len(s.Args) > MaxArgs:
		return kind.Newf(kind.Invalid, "start", "", "more than %d arguments", MaxArgs)
	case hasNUL(s.Cmd) || hasNUL(s.Cwd) || hasNUL(s.User) || s.Arg0 != nil && hasNUL(*s.Arg0):
		return kind.New(kind.Invalid, "start", "", "NUL byte in cmd, arg0, cwd or user")
	case len(s.Cwd) > MaxPath || len(s.User) > MaxPath:
		return kind.Newf(kind.Invalid, "start", "", "cwd or user of more than %d bytes", MaxPath)
	case s.Timeout < 0:
		return kind.New(kind.Invalid, "start", "", "timeout is negative")
	case s.PTY != nil && (s.PTY.Cols > MaxWindow || s.PTY.Rows > MaxWindow):
		return kind.Newf(kind.Invalid, "start", "", "terminal larger than %d", MaxWindow)
	}
	for _, a := range s.Args {
		if hasNUL(a) {
			return kind.New(kind.Invalid, "start", "", "NUL byte in an argument")
		}
	}
	if err := CheckEnv("start", s.Env); err != nil {
		return err
	}
	if err := s.Confine.Check(); err != nil {
		return err
	}
	if n := len(AppendSpec(nil, s)); n > MaxSpecSize {
		return kind.Newf(kind.Invalid, "start", "", "command of %d bytes, the limit is %d", n, MaxSpecSize)
	}
	return nil
}

// CheckEnv returns an error of kind.Invalid for the operation op if env cannot be the
// environment of a process.
func CheckEnv(op string, env map[string]string) error {
	for k, v := range env {
		if k == "" || hasNUL(k) || hasNUL(v) || containsByte(k, '=') {
			return kind.Newf(kind.Invalid, op, "", "environment variable %q cannot be set", k)
		}
	}
	return nil
}

// Hash returns a hash of s, whose environment is open, for a tenant's sandbox. A retried Start
// must have the hash of the first, also if each attempt has a span of its own. A reader of the record
// cannot test guesses of the environment against the hash, because its key is not in the record.
func (s *Spec) Hash(r *seal.Ring, tenant string, sbx sandbox.ID) []byte {
	untraced := *s
	untraced.Trace = nil
	return r.Hash(seal.Place{Tenant: tenant, Record: string(sbx), Field: "spec"}, AppendSpec(nil, &untraced))
}

// Public returns what may be stored of s for readers: no environment, nothing that its patterns
// match, and with sandbox.RecordNone no command.
func (s *Spec) Public() Spec {
	p := *s
	p.Env, p.Sealed, p.Hidden, p.Redact = nil, "", "", nil
	set, err := redact.Compile(s.Redact)
	if err != nil || s.Record >= sandbox.RecordNone { // patterns were compiled before: an error cannot happen
		p.Cmd, p.Args, p.Arg0, p.Cwd, p.User, p.Confine = "", nil, nil, "", "", nil
	}
	p.Cmd, p.Args, p.Cwd, p.User = set.Text(p.Cmd), set.Texts(p.Args), set.Text(p.Cwd), set.Text(p.User)
	p.Arg0, p.Tag = redactText(set, p.Arg0), redactText(set, p.Tag)
	return p
}

func redactText(set *redact.Set, s *string) *string {
	if set == nil || s == nil {
		return s
	}
	text := set.Text(*s)
	return &text
}

// EnvPlace returns the place of the sealed environment of a tenant's process.
func EnvPlace(tenant string, id ID) seal.Place {
	return seal.Place{Tenant: tenant, Record: string(id), Field: "environment"}
}

// hidden reports whether Public has less than the environment removed.
func (s *Spec) hidden() bool { return s.Record >= sandbox.RecordNone || len(s.Redact) > 0 }

func hiddenPlace(tenant string, id ID) seal.Place {
	return seal.Place{Tenant: tenant, Record: string(id), Field: "command"}
}

// Seal returns s for a command or the catalog: only the ring can read its environment, and what
// [Spec.Public] does not show. Open reverses it.
func (s *Spec) Seal(r *seal.Ring, tenant string, id ID) (out Spec, err error) {
	if s.hidden() {
		out = s.Public()
		out.Hidden, err = r.Seal(hiddenPlace(tenant, id), string(AppendSpec(nil, s)))
		return out, err
	}
	out = *s
	out.Env = nil
	out.Sealed, err = r.SealMap(EnvPlace(tenant, id), s.Env)
	return out, err
}

// Open returns the spec that Seal sealed.
func (s *Spec) Open(r *seal.Ring, tenant string, id ID) (out Spec, err error) {
	if s.Hidden == "" {
		out = *s
		out.Env, err = s.OpenEnv(r, tenant, id)
		return out, err
	}
	text, err := r.Open(hiddenPlace(tenant, id), s.Hidden)
	if err != nil {
		return *s, err
	}
	return ParseSpec([]byte(text))
}

// OpenEnv returns the environment of a spec that Seal returned. Older specs are not sealed.
func (s *Spec) OpenEnv(r *seal.Ring, tenant string, id ID) (map[string]string, error) {
	if s.Sealed == "" {
		return s.Env, nil
	}
	return r.OpenMap(EnvPlace(tenant, id), s.Sealed)
}

func hasNUL(s string) bool { return containsByte(s, 0) }

func containsByte(s string, b byte) bool {
	for i := range len(s) {
		if s[i] == b {
			return true
		}
	}
	return false
}
