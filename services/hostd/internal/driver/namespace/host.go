//go:build linux

package namespace

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"

	"github.com/millrace/millrace/services/hostd/internal/driver/namespace/nsinit"
)

// hostTemplate is the part of the host that the "host" template shows. All
// sandboxes share it.
type hostTemplate struct {
	etc     string   // a prepared /etc
	etcDirs []string // the directories in it
	lock    *os.File // prevents its removal
	usrDirs []string
	binds   []string
	links   []nsinit.Text
	shell   string
	sudo    bool
}

// newHostTemplate prepares the template, with program as its sudo unless it is empty.
func newHostTemplate(log *slog.Logger, templates, program string) (*hostTemplate, error) {
	etc, lock, err := lockedEtc(log, "/etc", templates, program)
	if err != nil {
		return nil, fmt.Errorf("prepare /etc: %w", err)
	}
	etcDirs, err := directories(etc)
	if err != nil {
		return nil, errors.Join(err, lock.Close())
	}
	t := &hostTemplate{etc: etc, etcDirs: etcDirs, lock: lock, usrDirs: writableUsr("/usr"), shell: "/bin/sh", sudo: program != ""}
	if _, err := os.Stat("/bin/bash"); err == nil {
		t.shell = "/bin/bash"
	}
	for _, n := range []string{"bin", "sbin", "lib", "lib32", "lib64", "libx32"} {
		if to, err := os.Readlink("/" + n); err == nil {
			t.links = append(t.links, nsinit.Text{Name: n, Body: to})
		} else if st, err := os.Stat("/" + n); err == nil && st.IsDir() {
			t.binds = append(t.binds, n)
		}
	}
	return t, nil
}

// writableUsr lists the directories of usr into which software is installed,
// parents first, as paths below usr.
func writableUsr(usr string) []string {
	var dirs []string
	for _, pattern := range []string{
		"bin", "sbin", "lib", "share", "include", "src", "lib/*-linux-gnu*", "lib/node_modules", "lib/python3", "lib/python3/dist-packages",
		"share/applications", "share/ca-certificates", "share/doc", "share/fonts", "share/keyrings", "share/man",
		"local", "local/*", "local/lib/*", "local/lib/python3*/*", "local/share/man",
	} {
		found, err := filepath.Glob(filepath.Join(usr, pattern))
		if err != nil {
			continue
		}
		for _, f := range found {
			// A directory in the upper layer would hide a link of the sandbox's.
			if st, err := os.Lstat(f); err == nil && st.IsDir() {
				dirs = append(dirs, strings.TrimPrefix(f, usr+"/"))
			}
		}
	}
	return dirs
}

// files returns the initial files of a sandbox.
func (t *hostTemplate) files(hostname string) []nsinit.File {
	var id [16]byte
	rand.Read(id[:])
	all := append(append(homeFiles(), nameFiles(hostname)...), []nsinit.File{
		{Name: "etc/passwd", Body: passwd(t.shell)},
		{Name: "etc/group", Body: group},
		{Name: "etc/resolv.conf", Body: resolvConf},
		{Name: "etc/nsswitch.conf", Body: "passwd: files\ngroup: files\nhosts: files dns\nservices: files\nprotocols: files\nrpc: files\nethers: files\n"},
		{Name: "etc/profile", Body: profile},
		{Name: "etc/bash.bashrc", Body: "[ -z \"$PS1\" ] || PS1='\\u@\\h:\\w\\$ '\n"},
		{Name: "etc/shells", Body: "/bin/sh\n/bin/bash\n/usr/bin/sh\n/usr/bin/bash\n"},
		{Name: "etc/pip.conf", Body: pipConf},
		{Name: "etc/machine-id", Body: hex.EncodeToString(id[:]) + "\n"},
	}...)
	if t.sudo {
		all = withPython(withSudo(all))
	}
	return all
}

// withPython adds a command python to files, where the host has only python3.
func withPython(files []nsinit.File) []nsinit.File {
	const python = "/usr/bin/python"
	if _, err := os.Lstat(python); err == nil {
		return files
	}
	if _, err := os.Stat(python + "3"); err != nil {
		return files
	}
	return append(files, nsinit.File{Name: strings.TrimPrefix(python, "/"), Body: "#!/bin/sh\nexec " + python + "3 \"$@\"\n", Mode: 0o755})
}

func hosts(hostname string) string {
	return "127.0.0.1 localhost\n::1 localhost ip6-localhost ip6-loopback\n127.0.1.1 " + hostname + "\n"
}

const resolvConf = "# There is no network but the loopback.\n"

// searchPath is the default PATH.
const searchPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// pipConf permits pip to install packages, as E2B's templates do: no package manager
// manages the sandbox's own files.
const pipConf = "[global]\nbreak-system-packages = true\n"

const profile = `export PATH="${PATH:-` + searchPath + `}" LANG="${LANG:-C.UTF-8}"
[ -z "$BASH" ] || [ ! -r /etc/bash.bashrc ] || . /etc/bash.bashrc
for f in /etc/profile.d/*.sh; do [ ! -r "$f" ] || . "$f"; done
unset f
`

// There are no passwords: /etc/shadow does not exist.
func passwd(shell string) string {
	return strings.ReplaceAll(`root:*:0:0:root:/root:SHELL
daemon:*:1:1:daemon:/usr/sbin:/usr/sbin/nologin
bin:*:2:2:bin:/bin:/usr/sbin/nologin
sys:*:3:3:sys:/dev:/usr/sbin/nologin
man:*:6:12:man:/var/cache/man:/usr/sbin/nologin
mail:*:8:8:mail:/var/mail:/usr/sbin/nologin
www-data:*:33:33:www-data:/var/www:/usr/sbin/nologin
user:*:1000:1000:user:/home/user:SHELL
nobody:*:65534:65534:nobody:/nonexistent:/usr/sbin/nologin
`, "SHELL", shell)
}

const group = `root:*:0:
daemon:*:1:
bin:*:2:
sys:*:3:
adm:*:4:
tty:*:5:
mail:*:8:
man:*:12:
sudo:*:27:user
www-data:*:33:
shadow:*:42:
staff:*:50:
users:*:100:
user:*:1000:
nogroup:*:65534:
`

// environ returns the shim's environment.
func environ(shell string, env map[string]string) []string {
	all := map[string]string{
		"PATH": searchPath, "HOME": "/home/user", "USER": "user", "LOGNAME": "user", "SHELL": shell, "LANG": "C.UTF-8",
	}
	for k, v := range env {
		all[k] = v
	}
	list := make([]string, 0, len(all))
	for k, v := range all {
		list = append(list, k+"="+v)
	}
	return list
}
