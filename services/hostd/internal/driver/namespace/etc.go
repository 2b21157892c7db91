//go:build linux

package namespace

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// etcWanted lists the files of the host's /etc that a sandbox may see: what programs in /usr
// need to work, and nothing that commonly holds a secret, the name of a person or
// information about the host. A pattern names a file or a whole directory.
func etcWanted() []string {
	return []string{
		"alternatives", "ld.so.cache", "ld.so.conf", "ld.so.conf.d",
		"ca-certificates", "ca-certificates.conf", "crypto-policies", "pki/ca-trust", "pki/tls/cert.pem", "pki/tls/certs",
		"pki/tls/openssl.cnf", "ssl/cert.pem", "ssl/certs", "ssl/openssl.cnf",
		"localtime", "timezone", "locale.alias", "locale.conf", "default/locale",
		"debian_version", "lsb-release", "os-release", "redhat-release", "alpine-release", "issue",
		"ethertypes", "gai.conf", "host.conf", "networks", "protocols", "rpc", "services", "magic", "magic.mime", "mailcap",
		"mime.types", "netconfig", "xattr.conf",
		"bash_completion", "bash_completion.d", "inputrc", "nanorc", "terminfo", "vim", "manpath.config", "groff", "screenrc",
		"adduser.conf", "deluser.conf", "login.defs", "pam.conf", "pam.d",
		"perl", "python*", "java-*", "maven", "php", "ruby*", "gdb", "debuginfod", "dpkg", "rpm", "sgml", "xml", "texmf",
		"R/ldpaths", "R/Makeconf", "R/Renviron", "R/repositories", // but not Renviron.site, which may have tokens
		"X11", "fonts", "gtk-*", "dconf", "glvnd", "vulkan", "OpenCL", "ImageMagick-*", "xdg", "dbus-1", "chromium", "alsa",
		"pulse", "matplotlibrc", "mke2fs.conf", "ucf.conf", "wgetrc", "rmt",
	}
}

const (
	etcVersion = "1"     // version of what prepareEtc makes of the same host
	maxEtcFile = 4 << 20 // bytes; larger ones are left out
	newPrefix  = "new-"  // prefix of directories that are being filled
)

// prepareEtc copies the wanted files of the directory from, with program as the sandboxes'
// sudo if it is not empty, into a directory below templates, and returns its path. It is named
// after its contents: an unchanged /etc is copied once, and a sandbox keeps its initial copy.
func prepareEtc(from, templates, program string) (string, error) {
	if err := os.MkdirAll(templates, 0o755); err != nil {
		return "", err
	}
	files, digest, err := scanEtc(from, program)
	if err != nil {
		return "", err
	}
	dir := filepath.Join(templates, etcPrefix+digest)
	if _, err := os.Stat(dir); err == nil {
		return dir, nil
	}
	removeStale(templates)
	tmp, err := os.MkdirTemp(templates, newPrefix)
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(tmp)
	for _, f := range files {
		if err := f.copy(from, tmp); err != nil {
			return "", fmt.Errorf("copy /etc/%s: %w", f.name, err)
		}
	}
	if err := errors.Join(addToEtc(tmp), copySudo(program, tmp)); err != nil {
		return "", err
	}
	if err := os.Chmod(tmp, 0o755); err != nil {
		return "", err
	}
	err = os.Rename(tmp, dir)
	if errors.Is(err, fs.ErrExist) || errors.Is(err, unix.ENOTEMPTY) { // another hostd was faster
		return dir, nil
	}
	return dir, err
}

// addToEtc adds what programs expect in /etc and a host may lack: directories that
// root puts files into, and files that su requires.
func addToEtc(etc string) error {
	for _, dir := range []string{"default", "profile.d", "security", "sudoers.d"} {
		if err := os.MkdirAll(filepath.Join(etc, dir), 0o755); err != nil {
			return err
		}
	}
	limits := filepath.Join(etc, "security/limits.conf")
	return errors.Join(os.WriteFile(limits, []byte("# pam_limits requires this file.\n"), 0o644), os.Symlink("/proc/self/mounts", filepath.Join(etc, "mtab")))
}

// directories lists the directories in dir, parents first.
func directories(dir string) ([]string, error) {
	var all []string
	err := filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() && p != dir {
			all = append(all, strings.TrimPrefix(p, dir+"/"))
		}
		return err
	})
	return all, err
}

// removeStale removes what an interrupted prepareEtc left.
func removeStale(templates string) {
	old, err := filepath.Glob(filepath.Join(templates, newPrefix+"*"))
	if err != nil {
		return
	}
	for _, dir := range old {
		if st, err := os.Stat(dir); err == nil && time.Since(st.ModTime()) > time.Hour {
			os.RemoveAll(dir)
		}
	}
}

type etcFile struct {
	name string // below /etc
	info fs.FileInfo
	link string // target of a symbolic link
}

// scanEtc lists the wanted files, parents first, with a fingerprint of them and of program.
func scanEtc(from, program string) ([]etcFile, string, error) {
	var files []etcFile
	sum := sha256.New()
	sudo, err := fingerprintOf(program)
	if err != nil {
		return nil, "", err
	}
	io.WriteString(sum, etcVersion+sudo) //nolint:errcheck // a hash accepts all input
	err = filepath.WalkDir(from, func(p string, d fs.DirEntry, err error) error {
		if p == from || errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) {
			return nil
		}
		if err != nil {
			return err
		}
		name, err := filepath.Rel(from, p)
		if err != nil {
			return err
		}
		switch matchEtc(name) {
		case none:
			return skip(d)
		case within:
			return nil // made when something in it is copied
		}
		f := etcFile{name: name}
		if f.info, err = d.Info(); err != nil || !f.public() {
			return skip(d)
		}
		if d.Type()&fs.ModeSymlink != 0 {
			if f.link, err = os.Readlink(p); err != nil {
				return skip(d)
			}
		}
		files = append(files, f)
		fmt.Fprintf(sum, "%q %q %v %d %d\n", name, f.link, f.info.Mode(), f.info.Size(), f.info.ModTime().UnixNano())
		return nil
	})
	return files, hex.EncodeToString(sum.Sum(nil))[:16], err
}

func skip(d fs.DirEntry) error {
	if d.IsDir() {
		return fs.SkipDir
	}
	return nil
}

type match int

const (
	none   match = iota
	within       // a directory that contains something wanted
	whole
)

func matchEtc(name string) match {
	best := none
	for _, w := range etcWanted() {
		depth := strings.Count(w, "/") + 1
		head := firstElements(name, depth)
		if ok, _ := path.Match(w, head); ok {
			return whole
		}
		if strings.HasPrefix(w, name+"/") {
			best = within
		}
	}
	return best
}

func firstElements(name string, n int) string {
	f := strings.SplitN(name, "/", n+1)
	return strings.Join(f[:min(n, len(f))], "/")
}

// public reports whether all users of the host may read the file; others
// are not copied.
func (f etcFile) public() bool {
	m := f.info.Mode()
	switch {
	case m.IsDir():
		return m&0o005 == 0o005
	case m.IsRegular():
		return m&0o004 != 0 && f.info.Size() <= maxEtcFile
	}
	return m&fs.ModeSymlink != 0
}

func (f etcFile) copy(from, to string) error {
	dst := filepath.Join(to, f.name)
	if err := os.MkdirAll(filepath.Dir(dst), 0o755); err != nil {
		return err
	}
	switch m := f.info.Mode(); {
	case m.IsDir():
		return os.Mkdir(dst, 0o755)
	case m&fs.ModeSymlink != 0:
		return os.Symlink(f.link, dst)
	}
	src, err := os.OpenFile(filepath.Join(from, f.name), os.O_RDONLY|unix.O_NOFOLLOW, 0)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) {
		return nil // removed or made unreadable since it was listed
	}
	if err != nil {
		return err
	}
	defer src.Close()
	out, err := os.OpenFile(dst, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644|f.info.Mode().Perm()&0o111)
	if err != nil {
		return err
	}
	if _, err := io.Copy(out, io.LimitReader(src, maxEtcFile)); err != nil {
		out.Close()
		return err
	}
	return out.Close()
}
