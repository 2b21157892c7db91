package shim

import (
	"cmp"
	"errors"
	"io"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"syscall"

	"github.com/millrace/millrace/events/kind"
)

// account is a line of the sandbox's /etc/passwd.
type account struct {
	name, home string
	uid, gid   int
}

// lookup finds who is to run a process: by name, by number, or the default,
// which is the template's, or the user that the driver named in the shim's
// environment. That one's home is where the driver says: without isolation it is
// not the one that the machine's own files name. A sandbox with one user only
// has him for a default, whoever the template's is.
func (s *Shim) lookup(name string) (account, error) {
	byDefault := cmp.Or(s.cfg.User, os.Getenv("USER"))
	a, ok := find(cmp.Or(name, byDefault))
	switch {
	case !ok && name != "":
		return account{}, kind.Newf(kind.Unauthenticated, "start", "", "invalid username: '%s'", name)
	case !ok, name == "" && s.uid != 0 && a.uid != s.uid:
		a = s.self()
	}
	if home := os.Getenv("HOME"); s.cfg.User == "" && home != "" && (name == "" || a.name == byDefault) {
		a.home = home
	}
	return a, nil
}

// find looks an account up by name or by number.
func find(name string) (account, bool) {
	number, err := strconv.Atoi(name)
	isNumber := err == nil
	for a := range accounts {
		if a.name == name || isNumber && a.uid == number {
			return a, true
		}
	}
	return account{}, false
}

// self is who runs the shim.
func (s *Shim) self() account {
	if a, ok := find(strconv.Itoa(s.uid)); ok {
		return a
	}
	if s.uid == 0 {
		return account{name: "root", home: "/root"}
	}
	return account{name: strconv.Itoa(s.uid), home: "/", uid: s.uid, gid: os.Getegid()}
}

// accounts yields the lines of /etc/passwd.
func accounts(yield func(account) bool) {
	for f := range colonFile("/etc/passwd") {
		if len(f) < 7 {
			continue
		}
		uid, err1 := strconv.Atoi(f[2])
		gid, err2 := strconv.Atoi(f[3])
		if err1 != nil || err2 != nil {
			continue
		}
		if !yield(account{name: f[0], uid: uid, gid: gid, home: f[5]}) {
			return
		}
	}
}

// groups are the ids of all groups of an account.
func (a *account) groups() []uint32 {
	out := []uint32{uint32(a.gid)}
	for f := range colonFile("/etc/group") {
		if len(f) < 4 {
			continue
		}
		gid, err := strconv.Atoi(f[2])
		if err != nil || gid == a.gid {
			continue
		}
		for member := range strings.SplitSeq(f[3], ",") {
			if member == a.name {
				out = append(out, uint32(gid))
			}
		}
	}
	return out
}

func colonFile(path string) func(func([]string) bool) {
	return func(yield func([]string) bool) {
		b, err := readAccounts(path)
		if err != nil {
			return
		}
		for line := range strings.Lines(string(b)) {
			if !yield(strings.Split(strings.TrimSuffix(line, "\n"), ":")) {
				return
			}
		}
	}
}

// nameOf is the first name in a colon-separated file with that number.
func nameOf(path string, id uint32) string {
	number := strconv.FormatUint(uint64(id), 10)
	for f := range colonFile(path) {
		if len(f) > 2 && f[2] == number {
			return f[0]
		}
	}
	return number
}

// maxAccounts is the most bytes of a file of accounts that are looked at.
const maxAccounts = 1 << 20

// readAccounts reads a file of the sandbox's making, which may be anything.
func readAccounts(path string) ([]byte, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close() //nolint:errcheck // it was only read from
	if fi, err := f.Stat(); err != nil || !fi.Mode().IsRegular() {
		return nil, errors.Join(err, fs.ErrInvalid)
	}
	return io.ReadAll(io.LimitReader(f, maxAccounts))
}

// credential is what a child needs to run as a; nil: it already does.
func (s *Shim) credential(a *account) (*syscall.Credential, error) {
	if a.uid == s.uid && a.gid == os.Getegid() {
		return nil, nil
	}
	if s.uid != 0 {
		return nil, kind.Newf(kind.Unauthenticated, "start", "", "invalid username: '%s': the sandbox has one user only", a.name)
	}
	c := &syscall.Credential{Uid: uint32(a.uid), Gid: uint32(a.gid), Groups: a.groups()}
	if b, err := os.ReadFile("/proc/self/setgroups"); err == nil && strings.TrimSpace(string(b)) == "deny" {
		c.NoSetGroups = true
	}
	return c, nil
}

// environ is a process's environment: who it is, then the sandbox's, then its
// own. Of the shim's it has the path, and the mark by which the direct driver
// finds what hides from it.
func (s *Shim) environ(a *account, own map[string]string) map[string]string {
	env := map[string]string{"PATH": defaultPath, "HOME": a.home, "USER": a.name, "LOGNAME": a.name}
	if path := os.Getenv("PATH"); path != "" {
		env["PATH"] = path
	}
	s.mu.Lock()
	s.proxyEnv(env)
	for k, v := range s.env {
		env[k] = v
	}
	s.mu.Unlock()
	for k, v := range own {
		env[k] = v
	}
	if mark := os.Getenv(sandboxMark); mark != "" {
		env[sandboxMark] = mark
	}
	return env
}

const sandboxMark = "MILLRACE_SANDBOX_ID"

const defaultPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
