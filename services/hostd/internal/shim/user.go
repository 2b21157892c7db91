package shim

import (
	"cmp"
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

// lookup finds the user of a process: by name, by number, or the default, which is the
// template's, or the user that the driver named in the shim's environment. The home of that
// one is the driver's: without isolation it differs from the one in the machine's passwd
// file. In a sandbox with a single user, that user is the default, regardless of the
// template.
func (s *Shim) lookup(name string) (account, error) {
	byDefault := cmp.Or(s.cfg.User, os.Getenv("USER"))
	a, ok := s.find(cmp.Or(name, byDefault))
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
func (s *Shim) find(name string) (account, bool) {
	number, err := strconv.Atoi(name)
	isNumber := err == nil
	for a := range s.accounts {
		if a.name == name || isNumber && a.uid == number {
			return a, true
		}
	}
	return account{}, false
}

// self returns the account of the shim.
func (s *Shim) self() account {
	if a, ok := s.find(strconv.Itoa(s.uid)); ok {
		return a
	}
	if s.uid == 0 {
		return account{name: "root", home: "/root"}
	}
	return account{name: strconv.Itoa(s.uid), home: "/", uid: s.uid, gid: os.Getegid()}
}

// accounts yields the lines of /etc/passwd.
func (s *Shim) accounts(yield func(account) bool) {
	for f := range s.passwd.lines {
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

// groups returns the ids of all groups of an account.
func (s *Shim) groups(a *account) []uint32 {
	out := []uint32{uint32(a.gid)}
	for f := range s.group.lines {
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

// credential returns the credential with which a child runs as a; nil if the shim already
// runs as a.
func (s *Shim) credential(a *account) (*syscall.Credential, error) {
	if a.uid == s.uid && a.gid == os.Getegid() {
		return nil, nil
	}
	if s.uid != 0 {
		return nil, kind.Newf(kind.Unauthenticated, "start", "", "invalid username: '%s': the sandbox has one user only", a.name)
	}
	return &syscall.Credential{Uid: uint32(a.uid), Gid: uint32(a.gid), Groups: s.groups(a), NoSetGroups: s.denied()}, nil
}

// setgroupsDenied reports whether setgroups is denied in the user namespace. That is set
// before the shim starts and cannot change.
func setgroupsDenied() bool {
	b, err := os.ReadFile("/proc/self/setgroups")
	return err == nil && strings.TrimSpace(string(b)) == "deny"
}

// environ returns the environment of a process: the account's variables, then the
// sandbox's, then its own. From the shim's environment come only PATH and sandboxMark, by
// which the direct driver finds processes that hide from it.
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
