package users

import (
	"cmp"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"github.com/millrace/millrace/events/kind"
)

// Account is a line of the sandbox's /etc/passwd.
type Account struct {
	Name, Home string
	UID, GID   int
}

// Config configures a Database.
type Config struct {
	User    string // user of processes that name none; default: $USER, else the shim's own user
	Workdir string // working directory of processes that name none, if it exists; default: the user's home
}

// Database has the users and groups of the sandbox. It is safe for concurrent use.
type Database struct {
	cfg           Config
	uid           int // the shim's own
	passwd, group colonFile
	denied        func() bool // setgroups is denied in this user namespace
}

// New returns the database of the shim's own root, which is the sandbox's.
func New(cfg Config) *Database {
	return &Database{
		cfg:    cfg,
		uid:    syscall.Geteuid(),
		passwd: colonFile{path: "/etc/passwd"},
		group:  colonFile{path: "/etc/group"},
		denied: sync.OnceValue(setgroupsDenied),
	}
}

// UserName returns the name of a user, or the id if it has none.
func (d *Database) UserName(id uint32) string { return d.passwd.nameOf(id) }

// GroupName returns the name of a group, or the id if it has none.
func (d *Database) GroupName(id uint32) string { return d.group.nameOf(id) }

// Lookup finds the user of a process: by name, by number, or the default, which is the
// template's, or the user that the driver named in the shim's environment. The home of that
// one is the driver's: without isolation it differs from the one in the machine's passwd
// file. In a sandbox with a single user, that user is the default, regardless of the
// template.
func (d *Database) Lookup(name string) (Account, error) {
	byDefault := cmp.Or(d.cfg.User, os.Getenv("USER"))
	a, ok := d.find(cmp.Or(name, byDefault))
	switch {
	case !ok && name != "":
		return Account{}, kind.Newf(kind.Unauthenticated, "start", "", "invalid username: '%s'", name)
	case !ok, name == "" && d.uid != 0 && a.UID != d.uid:
		a = d.self()
	}
	if home := os.Getenv("HOME"); d.cfg.User == "" && home != "" && (name == "" || a.Name == byDefault) {
		a.Home = home
	}
	return a, nil
}

// find looks an account up by name or by number.
func (d *Database) find(name string) (Account, bool) {
	number, err := strconv.Atoi(name)
	isNumber := err == nil
	for a := range d.accounts {
		if a.Name == name || isNumber && a.UID == number {
			return a, true
		}
	}
	return Account{}, false
}

// self returns the account of the shim.
func (d *Database) self() Account {
	if a, ok := d.find(strconv.Itoa(d.uid)); ok {
		return a
	}
	if d.uid == 0 {
		return Account{Name: "root", Home: "/root"}
	}
	return Account{Name: strconv.Itoa(d.uid), Home: "/", UID: d.uid, GID: os.Getegid()}
}

// accounts yields the lines of /etc/passwd.
func (d *Database) accounts(yield func(Account) bool) {
	for f := range d.passwd.lines {
		if len(f) < 7 {
			continue
		}
		uid, err1 := strconv.Atoi(f[2])
		gid, err2 := strconv.Atoi(f[3])
		if err1 != nil || err2 != nil {
			continue
		}
		if !yield(Account{Name: f[0], UID: uid, GID: gid, Home: f[5]}) {
			return
		}
	}
}

// groups returns the ids of all groups of an account.
func (d *Database) groups(a *Account) []uint32 {
	out := []uint32{uint32(a.GID)}
	for f := range d.group.lines {
		if len(f) < 4 {
			continue
		}
		gid, err := strconv.Atoi(f[2])
		if err != nil || gid == a.GID {
			continue
		}
		for member := range strings.SplitSeq(f[3], ",") {
			if member == a.Name {
				out = append(out, uint32(gid))
			}
		}
	}
	return out
}

// Credential returns the credential with which a child runs as a; nil if the shim already
// runs as a.
func (d *Database) Credential(a *Account) (*syscall.Credential, error) {
	if a.UID == d.uid && a.GID == os.Getegid() {
		return nil, nil
	}
	if d.uid != 0 {
		return nil, kind.Newf(kind.Unauthenticated, "start", "", "invalid username: '%s': the sandbox has one user only", a.Name)
	}
	return &syscall.Credential{Uid: uint32(a.UID), Gid: uint32(a.GID), Groups: d.groups(a), NoSetGroups: d.denied()}, nil
}

// setgroupsDenied reports whether setgroups is denied in the user namespace. That is set
// before the shim starts and cannot change.
func setgroupsDenied() bool {
	b, err := os.ReadFile("/proc/self/setgroups")
	return err == nil && strings.TrimSpace(string(b)) == "deny"
}

// Dir returns the working directory of a process.
func (d *Database) Dir(a *Account, path string) (string, error) {
	if path == "" && d.cfg.Workdir != "" {
		if fi, err := os.Stat(d.cfg.Workdir); err == nil && fi.IsDir() {
			return d.cfg.Workdir, nil
		}
	}
	return a.cwd(path)
}

// resolve makes a path absolute: relative paths and ~ start at the account's home.
func (a *Account) resolve(path string) (string, error) {
	switch {
	case path == "" || path == "~":
		return a.Home, nil
	case strings.HasPrefix(path, "~/"):
		return filepath.Join(a.Home, path[2:]), nil
	case strings.HasPrefix(path, "~"):
		return "", kind.Newf(kind.Invalid, "resolve", "", "path '%s': only one's own home can be named by ~", path)
	case !filepath.IsAbs(path):
		return filepath.Join(a.Home, path), nil
	}
	return filepath.Clean(path), nil
}

func (a *Account) cwd(path string) (string, error) {
	dir, err := a.resolve(path)
	if err != nil {
		return "", err
	}
	fi, err := os.Stat(dir)
	switch {
	case err == nil && fi.IsDir():
		return dir, nil
	case path == "":
		return "/", nil // an account may have no home
	case err == nil:
		return "", kind.Newf(kind.Invalid, "start", "", "cwd '%s' is not a directory", path)
	}
	return "", kind.Newf(kind.Invalid, "start", "", "cwd '%s' does not exist", path)
}
