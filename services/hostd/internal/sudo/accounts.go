//go:build linux

package sudo

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// account is a line of passwd.
type account struct {
	name, home, shell string
	uid, gid          int
}

// system is the environment of a call; tests use made-up ones.
type system struct {
	etc string // the directory of passwd and group
	uid int    // of the caller
	gid int
	env []string
}

const userID = 1000 // the user that may call sudo, besides root

// accountOf finds an account by name, or by "#" and its number.
func (s *system) accountOf(name string) (account, bool) {
	number, byNumber := strings.CutPrefix(name, "#")
	for _, f := range s.lines("passwd", 7) {
		uid, err1 := strconv.ParseUint(f[2], 10, 31)
		gid, err2 := strconv.ParseUint(f[3], 10, 31)
		if err1 == nil && err2 == nil && (f[0] == name || byNumber && f[2] == number) {
			a := account{f[0], f[5], f[6], int(uid), int(gid)}
			if a.shell == "" {
				a.shell = "/bin/sh"
			}
			return a, true
		}
	}
	return account{}, false
}

// groupOf finds a group id by name, or by "#" and its number.
func (s *system) groupOf(name string) (int, bool) {
	number, byNumber := strings.CutPrefix(name, "#")
	for _, f := range s.lines("group", 4) {
		gid, err := strconv.ParseUint(f[2], 10, 31)
		if err == nil && (f[0] == name || byNumber && f[2] == number) {
			return int(gid), true
		}
	}
	return 0, false
}

// groupsOf returns all group ids of an account, gid first.
func (s *system) groupsOf(a *account, gid int) []int {
	all := []int{gid}
	if gid != a.gid {
		all = append(all, a.gid)
	}
	for _, f := range s.lines("group", 4) {
		id, err := strconv.ParseUint(f[2], 10, 31)
		if err == nil && slices.Contains(strings.Split(f[3], ","), a.name) && !slices.Contains(all, int(id)) {
			all = append(all, int(id))
		}
	}
	return all
}

// lines returns the lines of a file that have at least that many fields, split.
func (s *system) lines(name string, fields int) [][]string {
	b, err := os.ReadFile(filepath.Join(s.etc, name))
	if err != nil {
		return nil
	}
	var all [][]string
	for line := range strings.Lines(string(b)) {
		if f := strings.Split(strings.TrimSuffix(line, "\n"), ":"); len(f) >= fields && f[0] != "" {
			all = append(all, f)
		}
	}
	return all
}

// resolve returns the caller's account, and the account and group that the command runs as.
func (s *system) resolve(c *call) (from, to account, gid int, err error) {
	from, ok := s.accountOf("#" + strconv.Itoa(s.uid))
	switch {
	case !ok:
		return from, to, 0, errors.New("you do not exist in the passwd database")
	case s.uid != 0 && s.uid != userID:
		return from, to, 0, &permissionError{from.name}
	}
	name := c.user
	if name == "" {
		name = "root"
		if c.group != "" {
			name = from.name
		}
	}
	if to, ok = s.accountOf(name); !ok {
		return from, to, 0, errors.New("unknown user " + name)
	}
	gid = to.gid
	if c.group != "" {
		if gid, ok = s.groupOf(c.group); !ok {
			return from, to, 0, errors.New("unknown group " + c.group)
		}
	}
	return from, to, gid, nil
}

// permissionError is the error for a caller that may run nothing.
type permissionError struct{ name string }

func (o *permissionError) Error() string { return o.name + " is not in the sudoers file." }

// singleUser reports whether a user namespace has a single user, and therefore no root.
func singleUser(uidMap string) bool {
	f := strings.Fields(uidMap)
	return len(f) == 3 && f[2] == "1"
}
