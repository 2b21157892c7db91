//go:build linux

package sudo

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// Called reports whether this program was started as sudo: by that name, or with rights
// that its caller does not have. It then acts only as sudo, with any arguments.
func Called(args []string) bool {
	return os.Geteuid() != os.Getuid() || len(args) > 0 && filepath.Base(args[0]) == "sudo"
}

// Main runs sudo with the arguments args, without its name, and returns its exit code,
// unless the command replaces this process. It changes the user of this process.
func Main(args []string, stdout, stderr io.Writer) int {
	c, err := parse(args)
	code := 1
	switch {
	case err != nil:
	case c.mode == 'h':
		_, err = io.WriteString(stdout, usage)
		code = 0
	case c.mode == 'V':
		_, err = io.WriteString(stdout, version)
		code = 0
	default:
		s := system{etc: "/etc", uid: os.Getuid(), gid: os.Getgid(), env: os.Environ()}
		code, err = s.do(&c, stdout)
	}
	if err == nil {
		return code
	}
	text := "sudo: " + err.Error() + "\n"
	var denied *permissionError
	switch {
	case err == errUsage: //nolint:errorlint // only that value has no text
		text = usage
	case errors.Is(err, errUsage):
		text += usage
	case errors.As(err, &denied):
		text = err.Error() + "\n"
	}
	io.WriteString(stderr, text) //nolint:errcheck // stderr is the last resort
	return code
}

// do executes c.
func (s *system) do(c *call, stdout io.Writer) (code int, err error) {
	from, to, gid, err := s.resolve(c)
	if err != nil {
		return 1, err
	}
	// -k, -K and -v concern passwords, which are not used.
	switch {
	case c.mode == 'l':
		err = list(c, &from, stdout)
	case c.mode == 0 && (len(c.args) > 0 || c.login || c.shell):
		return s.run(c, &from, &to, gid)
	}
	if err != nil {
		return 1, err
	}
	return 0, nil
}

// list prints what from may run, or the path of a command.
func list(c *call, from *account, stdout io.Writer) error {
	if len(c.args) > 0 {
		path, err := find(c.args[0])
		if err == nil {
			_, err = fmt.Fprintln(stdout, strings.Join(append([]string{path}, c.args[1:]...), " "))
		}
		return err
	}
	host, err := os.Hostname()
	if err == nil {
		_, err = fmt.Fprintf(stdout, "User %s may run the following commands on %s:\n    (ALL : ALL) NOPASSWD: ALL\n", from.name, host)
	}
	return err
}

// run replaces this process by the command. It returns on error, and with -b.
func (s *system) run(c *call, from, to *account, gid int) (int, error) {
	uidMap, err := os.ReadFile("/proc/self/uid_map")
	if err != nil {
		return 1, err
	}
	single := os.Geteuid() != 0 && singleUser(string(uidMap))
	switch {
	case single && to.uid != 0 && to.uid != s.uid:
		return 1, errors.New("the sandbox has one user only")
	case single:
		to, gid = from, from.gid
	case os.Geteuid() != 0:
		return 1, errors.New("sudo must be owned by uid 0 and have the setuid bit set")
	}
	path, argv, err := s.command(c, from, to)
	if err != nil {
		return 1, err
	}
	env := s.environ(c, from, to, append([]string{path}, argv[1:]...))
	if !single {
		if err := s.switchUser(to, gid); err != nil {
			return 1, err
		}
	}
	if c.login {
		if err := os.Chdir(to.home); err != nil {
			fmt.Fprintf(os.Stderr, "sudo: unable to change directory to %s\n", to.home)
		}
	}
	unix.Umask(unix.Umask(0o022) | 0o022)
	// The command inherits only the standard three.
	unix.CloseRange(3, ^uint(0)>>1, unix.CLOSE_RANGE_CLOEXEC) //nolint:errcheck // with an older kernel no others are passed in
	if c.background {
		_, err := syscall.ForkExec(path, argv, &syscall.ProcAttr{Env: env, Files: []uintptr{0, 1, 2}})
		return failed(path, err)
	}
	err = syscall.Exec(path, argv, env)
	if errors.Is(err, syscall.ENOEXEC) { // a script without a #! line
		err = syscall.Exec("/bin/sh", append([]string{"sh", path}, argv[1:]...), env)
	}
	return failed(path, err)
}

// failed returns the exit code for a command that cannot be executed.
func failed(path string, err error) (int, error) {
	switch {
	case err == nil:
		return 0, nil
	case errors.Is(err, syscall.ENOENT):
		return 127, fmt.Errorf("unable to execute %s: %w", path, err)
	}
	return 126, fmt.Errorf("unable to execute %s: %w", path, err)
}

// command returns the program that c runs, and its arguments.
func (s *system) command(c *call, from, to *account) (path string, argv []string, err error) {
	switch {
	case c.login:
		path, argv = to.shell, []string{"-" + filepath.Base(to.shell)}
	case c.shell:
		path = from.shell
		for _, v := range s.env {
			if own, ok := strings.CutPrefix(v, "SHELL="); ok && own != "" {
				path = own
			}
		}
		argv = []string{path}
	default:
		path, err = find(c.args[0])
		return path, c.args, err
	}
	if len(c.args) > 0 {
		argv = append(argv, "-c", quote(c.args))
	}
	return path, argv, nil
}

// quote joins words into a shell command; as in Debian's sudo, $ keeps its meaning.
func quote(words []string) string {
	var b strings.Builder
	for i, w := range words {
		if i > 0 {
			b.WriteByte(' ')
		}
		for j := range len(w) {
			ch := w[j]
			plain := ch >= '0' && ch <= '9' || ch >= 'A' && ch <= 'Z' || ch >= 'a' && ch <= 'z' || ch == '_' || ch == '-' || ch == '$'
			if !plain {
				b.WriteByte('\\')
			}
			b.WriteByte(ch)
		}
	}
	return b.String()
}

// find looks a command up in root's path.
func find(name string) (string, error) {
	dirs := strings.Split(securePath, ":")
	if strings.Contains(name, "/") {
		dirs = []string{""}
	}
	for _, dir := range dirs {
		path := name
		if dir != "" {
			path = filepath.Join(dir, name)
		}
		if fi, err := os.Stat(path); err == nil && fi.Mode().IsRegular() && fi.Mode()&0o111 != 0 {
			return path, nil
		}
	}
	return "", fmt.Errorf("%s: command not found", name)
}

// switchUser changes this process to the user to and the group gid, permanently.
func (s *system) switchUser(to *account, gid int) error {
	if err := syscall.Setgroups(s.groupsOf(to, gid)); err != nil {
		return fmt.Errorf("unable to set supplementary group IDs: %w", err)
	}
	if err := syscall.Setresgid(gid, gid, gid); err != nil {
		return fmt.Errorf("unable to change to runas gid: %w", err)
	}
	if err := syscall.Setresuid(to.uid, to.uid, to.uid); err != nil {
		return fmt.Errorf("unable to change to runas uid: %w", err)
	}
	return nil
}
