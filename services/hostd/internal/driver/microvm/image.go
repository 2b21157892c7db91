//go:build linux

package microvm

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/services/hostd/internal/driver/internal/live"
)

// get returns the image of a tree, or of a busybox if tree is empty. It is made once.
func (i *images) get(ctx context.Context, tree string) (path string, err error) {
	if err := os.MkdirAll(i.dir, 0o700); err != nil {
		return "", err
	}
	if tree == "" {
		if tree, err = i.once(ctx, "busybox", i.busybox); err != nil {
			return "", err
		}
	}
	key, err := keyOf(tree)
	if err != nil {
		return "", err
	}
	return i.once(ctx, key, func(ctx context.Context) (string, error) { return i.image(ctx, tree, key) })
}

// image returns the image of the tree with that key.
func (i *images) image(ctx context.Context, tree, key string) (string, error) {
	path := filepath.Join(i.dir, imagePrefix+key+imageSuffix)
	if there, err := i.find(path); there || err != nil {
		return path, err
	}
	select {
	case i.slots <- struct{}{}:
		defer func() { <-i.slots }()
	case <-ctx.Done():
		return "", ctx.Err()
	}
	ctx, cancel := context.WithTimeout(ctx, makeTime)
	defer cancel()
	dir, err := os.Open(tree) // so that its inode number, and its key, is not reused
	if err != nil {
		return "", err
	}
	defer dir.Close()
	if err := checkUnchanged(tree, key); err != nil { // the tree may be gone after the wait for a slot
		return "", err
	}
	partial, err := createPartial(path)
	if err != nil {
		return "", err
	}
	tmp := partial.Name()
	defer partial.Close()
	defer os.Remove(tmp)
	if err := squash(ctx, tree, tmp); err != nil {
		return "", err
	}
	if err := checkUnchanged(tree, key); err != nil {
		return "", err
	}
	return path, os.Rename(tmp, path)
}

// checkUnchanged returns an error unless tree still has that key. The caller keeps the tree while
// it waits; once it has given up, the tree may be removed, and mksquashfs makes empty files
// of those that it does not find.
func checkUnchanged(tree, key string) error {
	if now, err := keyOf(tree); err != nil || now != key {
		return errors.Join(fmt.Errorf("%s was removed before its image was made", tree), err)
	}
	return nil
}

// find reports whether an image exists, and marks it as used. Otherwise it frees space for one.
func (i *images) find(path string) (bool, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	now := time.Now()
	if os.Chtimes(path, now, time.Time{}) == nil { // marks it as used
		return true, nil
	}
	return false, i.prune(now)
}

// createPartial creates the file of an image that is being made. It is locked as long as it is open:
// an unlocked one is incomplete. Another hostd may find it between the two steps, and remove it.
func createPartial(path string) (*os.File, error) {
	for {
		f, err := os.OpenFile(path+"."+rand.Text()+".tmp", os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
		if err != nil {
			return nil, err
		}
		var st unix.Stat_t
		if err := errors.Join(unix.Flock(int(f.Fd()), unix.LOCK_EX), unix.Fstat(int(f.Fd()), &st)); err != nil {
			return nil, errors.Join(fmt.Errorf("lock %s: %w", f.Name(), err), f.Close(), os.Remove(f.Name()))
		}
		if st.Nlink > 0 {
			return f, nil
		}
		f.Close()
	}
}

// removePartial removes an incomplete image, unless it is still being made.
func removePartial(path string) error {
	f, err := os.Open(path)
	if err == nil {
		defer f.Close()
		if err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); errors.Is(err, unix.EWOULDBLOCK) {
			return nil
		}
	}
	if err == nil {
		err = os.Remove(path)
	}
	if errors.Is(err, fs.ErrNotExist) { // another hostd removed it first
		return nil
	}
	return err
}

// squash makes an image of a tree. mksquashfs ends with hostd, and is killed first when the
// host runs out of memory.
func squash(ctx context.Context, tree, to string) error {
	args := []string{"-n", "10", "mksquashfs", tree, to, "-noappend", "-no-progress", "-quiet", "-mem", "512M", "-comp", "zstd", "-Xcompression-level", "3"}
	if os.Geteuid() != 0 {
		args = append(args, "-all-root") // all files have hostd's uid
	}
	cmd := exec.CommandContext(ctx, "nice", args...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := live.OnThread(".", func() error { // it ends with the thread that starts it
		if err := cmd.Start(); err != nil {
			return err
		}
		live.SetOOMScore(cmd.Process.Pid) //nolint:errcheck // it has ended then
		return cmd.Wait()
	})
	if err != nil {
		return errors.Join(ctx.Err(), fmt.Errorf("mksquashfs: %w: %.500s", err, out.Bytes()))
	}
	return nil
}

// keyOf returns a key of a tree: a replaced directory has another key.
func keyOf(tree string) (string, error) {
	var st unix.Stat_t
	if err := unix.Stat(tree, &st); err != nil {
		return "", &os.PathError{Op: "stat", Path: tree, Err: err}
	}
	sum := sha256.Sum256(fmt.Appendf(nil, "%s\x00%d\x00%d\x00%d", tree, st.Dev, st.Ino, st.Mtim.Nano()))
	return hex.EncodeToString(sum[:16]), nil
}

// busybox makes a tree that needs only one static program of the host.
func (i *images) busybox(ctx context.Context) (string, error) {
	program, err := exec.LookPath("busybox")
	if err == nil {
		err = static(program)
	}
	if err != nil {
		return "", fmt.Errorf("the template without a tree: %w; Debian: apt-get install busybox-static", err)
	}
	key, err := keyOf(program)
	if err != nil {
		return "", err
	}
	const layout = 1 // version of what fillBusybox makes
	tree := filepath.Join(i.dir, fmt.Sprintf("tree-%d-%s", layout, key))
	if _, err := os.Stat(tree); err == nil {
		return tree, nil
	}
	tmp, err := os.MkdirTemp(i.dir, "busybox-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(tmp)
	if err := fillBusybox(ctx, tmp, program); err != nil {
		return "", err
	}
	return tree, os.Rename(tmp, tree)
}

func fillBusybox(ctx context.Context, tree, program string) error {
	for _, d := range []string{"bin", "dev", "proc", "sys", "tmp", "etc", "run", "root", "home/user", "var/tmp", "var/lib", "usr/bin", "usr/local/bin", "opt", "mnt"} {
		if err := os.MkdirAll(filepath.Join(tree, d), 0o755); err != nil {
			return err
		}
	}
	b, err := os.ReadFile(program)
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(tree, "bin/busybox"), b, 0o755); err != nil {
		return err
	}
	list, err := exec.CommandContext(ctx, program, "--list").Output()
	if err != nil {
		return err
	}
	for applet := range strings.Lines(string(list)) {
		if applet = strings.TrimSpace(applet); applet != "busybox" {
			if err := os.Symlink("busybox", filepath.Join(tree, "bin", applet)); err != nil {
				return err
			}
		}
	}
	if os.Geteuid() == 0 {
		if err := os.Chown(filepath.Join(tree, "home/user"), 1000, 1000); err != nil {
			return err
		}
	}
	for name, body := range map[string]string{
		"passwd": "root:*:0:0:root:/root:/bin/sh\nuser:*:1000:1000:user:/home/user:/bin/sh\n",
		"group":  "root:*:0:\ntty:*:5:\nuser:*:1000:\n",
	} {
		if err := os.WriteFile(filepath.Join(tree, "etc", name), []byte(body), 0o644); err != nil {
			return err
		}
	}
	return errors.Join(os.Chmod(filepath.Join(tree, "root"), 0o700), os.Chmod(tree, 0o755))
}
