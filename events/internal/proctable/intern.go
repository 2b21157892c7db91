package proctable

import "github.com/millrace/millrace/events/process"

// interner stores equal values in catalog entries once: for a hundred thousand commands
// the garbage collector would otherwise mark a million objects, on all CPUs. The zero value
// works. It is guarded by the view's lock.
type interner struct {
	texts map[string]string
	exits map[exitKey]*process.Exit
}

// exitKey is an Exit that can be compared.
type exitKey struct {
	seen bool
	code int32
	exit process.Exit // without its code
}

// Limits of the tables; a table that reaches its limit is emptied.
const (
	internTexts = 4096
	internExits = 256
	internBytes = 256 // longest text that is interned
)

// summary replaces strings and exits in s by shared ones.
func (in *interner) summary(s *process.Summary) {
	for _, text := range []*string{&s.Tenant, &s.Host, &s.Spec.Cmd, &s.Spec.Cwd, &s.Spec.User} {
		*text = in.text(*text)
	}
	for i, arg := range s.Spec.Args {
		s.Spec.Args[i] = in.text(arg)
	}
	if s.Exit != nil {
		s.Exit = in.exit(s.Exit)
	}
}

func (in *interner) text(s string) string {
	if s == "" || len(s) > internBytes {
		return s
	}
	if was, ok := in.texts[s]; ok {
		return was
	}
	if in.texts == nil || len(in.texts) >= internTexts {
		in.texts = make(map[string]string)
	}
	in.texts[s] = s
	return s
}

func (in *interner) exit(x *process.Exit) *process.Exit {
	key := exitKey{exit: *x}
	if x.Code != nil {
		key.seen, key.code, key.exit.Code = true, *x.Code, nil
	}
	if was := in.exits[key]; was != nil {
		return was
	}
	if in.exits == nil || len(in.exits) >= internExits {
		in.exits = make(map[exitKey]*process.Exit)
	}
	in.exits[key] = x
	return x
}
