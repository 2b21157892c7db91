package image

import (
	"cmp"
	"fmt"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/millrace/millrace/events/template"
)

// Facts are the defaults for processes in a template; see template.Manifest.
type Facts struct {
	Arch     string
	Env      map[string]string
	Workdir  string
	User     string // name or number, added to /etc/passwd if missing; default template.DefaultUser
	Group    string // number of the group for an added numeric User; default root's
	Start    []string
	Services []template.Service // servers that clients may request by name
	Sudo     bool               // let set-uid programs work and the user become root; the host adds sudo to a tree without one
}

const (
	passwdFile = "etc/passwd"
	groupFile  = "etc/group"
	sudoers    = "etc/sudoers.d/millrace-user"

	userID = 1000 // of template.DefaultUser, and the only one on a host without root
)

// fit adds what sandboxes require of a tree: mount points and the user.
func (t *tree) fit(f *Facts) error {
	for _, name := range []string{"dev", "proc", "sys", "etc", "tmp", "run"} {
		kid := t.root.kids[name]
		switch {
		case kid == nil:
			mode := int64(dirMode)
			if name == "tmp" {
				mode = 0o1777
			}
			if _, err := t.put(t.root, name, &inode{dir: true, mode: mode}, 0); err != nil {
				return err
			}
		case !kid.dir:
			return invalid("its /%s must be a directory", name)
		}
	}
	for _, name := range []string{"dev", "proc", "sys"} { // mounts hide their contents
		clear(t.root.kids[name].kids)
	}
	if err := t.addUsers(f); err != nil {
		return err
	}
	if f.Sudo {
		return t.addSudo()
	}
	return nil
}

// overwrite writes files into the tree by path. Scripts and files in a bin directory are
// executable, and an empty body removes a name.
func (t *tree) overwrite(files map[string]string) error {
	for _, name := range slices.Sorted(maps.Keys(files)) {
		body, mode := files[name], int64(0o644)
		if body == "" {
			if dir, err := t.walk(t.root, strings.Split(path.Dir(name), "/"), 0, false); err == nil && dir != nil {
				delete(dir.kids, path.Base(name))
			}
			continue
		}
		if strings.HasPrefix(body, "#!") || path.Base(path.Dir(name)) == "bin" {
			mode = dirMode
		}
		if err := t.write(name, body, mode); err != nil {
			return err
		}
	}
	return nil
}

// addUsers adds the default user that clients expect and the image's own user, unless they
// exist.
func (t *tree) addUsers(f *Facts) error {
	const name = template.DefaultUser
	passwd, err := t.text(passwdFile)
	if err != nil {
		return err
	}
	group, err := t.text(groupFile)
	if err != nil {
		return err
	}
	if passwd == "" {
		passwd = "root:x:0:0:root:/root:/bin/sh\n"
	}
	if group == "" {
		group = "root:x:0:\n"
	}
	if !hasUser(passwd, name) { // "*": no password, also not in /etc/shadow
		shell := "/bin/sh"
		if bash, err := t.find("bin/bash"); err == nil && bash != nil {
			shell = "/bin/bash"
		}
		passwd += fmt.Sprintf("%s:*:%d:%d:%s:/home/%s:%s\n", name, userID, userID, name, name, shell)
		if !hasLine(group, name) {
			group += fmt.Sprintf("%s:x:%d:\n", name, userID)
		}
	}
	line, err := f.passwdLine(passwd)
	if err != nil {
		return err
	}
	passwd += line
	if err := t.write(passwdFile, passwd, 0o644); err != nil {
		return err
	}
	if err := t.write(groupFile, group, 0o644); err != nil {
		return err
	}
	home, err := t.walk(t.root, []string{"home"}, 0, true)
	if err != nil || home.kids[name] != nil {
		return err
	}
	_, err = t.put(home, name, &inode{dir: true, mode: dirMode, uid: userID, gid: userID}, 0)
	return err
}

// passwdLine returns the line to add to passwd for the image's user. Processes of an unknown
// user would run as root. An image may have a numeric user without a name.
func (f *Facts) passwdLine(passwd string) (string, error) {
	if f.User == "" || f.User == "root" || hasUser(passwd, f.User) {
		return "", nil
	}
	uid, err := strconv.ParseUint(f.User, 10, 32)
	if err != nil {
		return "", invalid("its user %.80q is not in its /%s", f.User, passwdFile)
	}
	gid, err := strconv.ParseUint(cmp.Or(f.Group, "0"), 10, 32)
	if err != nil {
		gid = 0 // names are not looked up
	}
	if uid > maxUID || gid > maxUID {
		return "", invalid("its user %d:%d exceeds the maximum %d", uid, gid, maxUID)
	}
	if uid == 0 {
		return "", nil
	}
	return fmt.Sprintf("u%d:*:%d:%d::/:/bin/sh\n", uid, uid, gid), nil
}

// addSudo lets the default user become root without a password.
func (t *tree) addSudo() error {
	return t.write(sudoers, template.DefaultUser+" ALL=(ALL:ALL) NOPASSWD: ALL\n", 0o440)
}

// text returns the body of a file in memory, with a newline at its end.
func (t *tree) text(p string) (string, error) {
	n, err := t.find(p)
	if err != nil || n == nil || len(n.body) == 0 {
		return "", err
	}
	return strings.TrimRight(string(n.body), "\n") + "\n", nil
}

// hasUser reports whether passwd has a valid line for a user's name or number.
func hasUser(passwd, user string) bool {
	number, err := strconv.Atoi(user)
	for line := range strings.Lines(passwd) {
		f := strings.Split(strings.TrimSuffix(line, "\n"), ":")
		if len(f) < 7 {
			continue
		}
		uid, uidErr := strconv.Atoi(f[2])
		_, gidErr := strconv.Atoi(f[3])
		if uidErr == nil && gidErr == nil && (f[0] == user || err == nil && uid == number) {
			return true
		}
	}
	return false
}

func hasLine(text, name string) bool {
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, name+":") {
			return true
		}
	}
	return false
}

// walkSorted calls f for every name of the tree, each directory before its contents. It
// returns Invalid for paths that are too long, which links in earlier paths can cause, and
// for directories that are nested too deeply for a host.
func (n *node) walkSorted(at string, f func(p string, n *node) error) error {
	for _, name := range slices.Sorted(maps.Keys(n.kids)) {
		kid, p := n.kids[name], path.Join(at, name)
		if len(p) > maxPath {
			return invalid("path %.80q: too long", p)
		}
		if strings.Count(p, "/") > template.MaxDepth {
			return invalid("path %.80q: more than %d nested directories", p, template.MaxDepth)
		}
		if err := f(p, kid); err != nil {
			return err
		}
		if err := kid.walkSorted(p, f); err != nil {
			return err
		}
	}
	return nil
}
