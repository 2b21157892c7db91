package builder

import (
	"encoding/json"
	"fmt"
	"maps"
	"path"
	"strconv"
	"strings"

	"github.com/millrace/millrace/events/build"
	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/template"
)

// settings are the settings of processes at some point of a build.
type settings struct {
	env     map[string]string
	user    string // empty: the template's
	workdir string // absolute; empty: the template's, or the user's home
	start   string
	ready   string
}

// layer is a part of a build that changes files.
type layer struct {
	settings
	step  int         // number, from 1
	do    *build.Step // RUN or COPY; nil: only dirs are needed
	dirs  []directory // directories and users that must exist before it
	sum   string      // hash of all inputs
	force bool        // do not reuse a layer with the same inputs
}

// name returns what E2B calls the layer's step.
func (l *layer) name() string {
	if l.step == packagesStep {
		return stepBase
	}
	return strconv.Itoa(l.step)
}

// maxTitle is the maximum number of bytes of a step in its title.
const maxTitle = 2048

// title returns the log line at the start of the layer's step; steps is the number of steps.
func (l *layer) title(steps int) string {
	if l.step == packagesStep {
		return "[base] Installing sudo, curl, ca-certificates, git and jq if they are missing"
	}
	title := "WORKDIR"
	if n := len(l.dirs); l.do == nil && l.dirs[n-1].path == "" {
		title = "USER"
	}
	if l.do != nil {
		title = l.do.Type + " " + l.do.Args[0]
		if l.do.Type == build.Copy {
			title += " " + l.do.Args[1]
		}
	}
	return l.prefix(steps) + " " + title[:min(len(title), maxTitle)]
}

// prefix returns the start of each log line about the layer.
func (l *layer) prefix(steps int) string {
	if l.step == packagesStep {
		return "[base]"
	}
	return fmt.Sprintf("[builder %d/%d]", l.step, steps)
}

// directory is a directory and its owner if it is created. Without a path it only requires that
// the user exists.
type directory struct {
	path, user string
	step       int // step that requires it
}

// Limits on a build's variables, including those of its base: a value that refers to others
// can be far longer than its definition.
const (
	maxVariables = 1000
	maxEnv       = 256 << 10 // bytes of all names and values, and of a WORKDIR
)

// plan returns the layers of a build on the base from, and the settings of processes after
// them. It returns Invalid, with the step, for too many or too large
// variables.
func plan(from *origin, spec *build.Spec, keys Keys) ([]layer, settings, error) {
	var out []layer
	begin, sum := from.settings, from.sum
	var dirs []directory
	now, force := begin, spec.Force
	now.env = maps.Clone(begin.env)
	if now.env == nil {
		now.env = map[string]string{}
	}
	if from.isImage() {
		first := packagesLayer(begin, sum, keys)
		out, sum = append(out, first), first.sum
	}
	for i := range spec.Steps {
		s := &spec.Steps[i]
		sum = chain(keys, sum, s.Type, s.Args, s.Files)
		force = force || s.Force
		switch s.Type {
		case build.Env:
			if err := now.set(s.Args); err != nil {
				return nil, now, atStep(strconv.Itoa(i+1), err)
			}
		case build.User:
			now.user, _, _ = strings.Cut(s.Args[0], ":")
			if now.user != template.DefaultUser && now.user != "root" { // both exist in every root
				dirs = append(dirs, directory{user: now.user, step: i + 1})
			}
		case build.Workdir:
			dir, err := expand(s.Args[0], now.env, maxEnv)
			if err != nil {
				return nil, now, atStep(strconv.Itoa(i+1), err)
			}
			now.workdir = absPath(now.workdir, dir)
			dirs = append(dirs, directory{now.workdir, now.user, i + 1})
		case build.Run, build.Copy:
			then := now
			then.env = maps.Clone(now.env)
			out = append(out, layer{settings: then, step: i + 1, do: s, dirs: dirs, sum: sum, force: force})
			dirs = nil
		}
	}
	if len(dirs) > 0 {
		out = append(out, layer{settings: now, step: len(spec.Steps), dirs: dirs, sum: sum, force: force})
	}
	if spec.Start != "" {
		now.start, now.ready = spec.Start, ""
	}
	if spec.Ready != "" {
		now.ready = spec.Ready
	}
	return out, now, nil
}

// set sets variables: names, each followed by its value.
func (f *settings) set(pairs []string) error {
	left := maxEnv
	for k, v := range f.env {
		left -= len(k) + len(v)
	}
	for ; len(pairs) > 1; pairs = pairs[2:] {
		name := pairs[0]
		if old, ok := f.env[name]; ok {
			left += len(name) + len(old)
		}
		value, err := expand(pairs[1], f.env, left-len(name))
		if err != nil {
			return err
		}
		if f.env[name] = value; len(f.env) > maxVariables {
			return kind.Newf(kind.Invalid, "build", "", "there are more than %d variables", maxVariables)
		}
		left -= len(name) + len(value)
	}
	return nil
}

// chain returns the hash of a sum and the inputs that follow. It has a key, because it is in records
// and the inputs include environments, which could be guessed.
func chain(keys Keys, sum string, next ...any) string {
	raw, err := json.Marshal(append([]any{sum}, next...))
	if err != nil {
		return "" // cannot happen: strings always encode
	}
	return keys.DeriveKey("layer." + string(raw))
}

// absPath returns the absolute path of p, which may be relative to dir.
func absPath(dir, p string) string {
	switch {
	case path.IsAbs(p):
		return path.Clean(p)
	case dir == "":
		dir = "/home/user"
	}
	return path.Join(dir, p)
}

// searchPath is the value of $PATH if it is not set.
const searchPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// expand replaces $NAME and ${NAME} of the set variables in a text; other names stay. It
// returns Invalid if the result exceeds most bytes.
func expand(text string, env map[string]string, most int) (string, error) {
	var out strings.Builder
	for {
		if out.Len()+len(text) > most {
			return "", kind.Newf(kind.Invalid, "build", "", "the variables have more than %d bytes", maxEnv)
		}
		i := strings.IndexByte(text, '$')
		if i < 0 || i == len(text)-1 {
			out.WriteString(text)
			return out.String(), nil
		}
		out.WriteString(text[:i])
		name, rest := variable(text[i+1:])
		v, ok := env[name]
		if name == "PATH" && !ok {
			v, ok = searchPath, true
		}
		if !ok {
			v = text[i : len(text)-len(rest)]
		}
		out.WriteString(v)
		text = rest
	}
}

// variable parses the name after a $.
func variable(s string) (name, rest string) {
	if s[0] == '{' {
		if end := strings.IndexByte(s, '}'); end > 0 {
			return s[1:end], s[end+1:]
		}
		return "", s
	}
	n := 0
	for n < len(s) && (s[n] == '_' || s[n]|0x20 >= 'a' && s[n]|0x20 <= 'z' || n > 0 && s[n] >= '0' && s[n] <= '9') {
		n++
	}
	return s[:n], s[n:]
}
