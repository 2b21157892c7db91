//go:build linux

package sudo

import (
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
)

func TestParse(t *testing.T) {
	for line, want := range map[string]call{
		"whoami":                         {args: []string{"whoami"}},
		"-u www-data id -u":              {user: "www-data", args: []string{"id", "-u"}},
		"-nuroot -gsys id":               {user: "root", group: "sys", args: []string{"id"}},
		"A=1 -H B= -- C=3 x":             {env: []string{"A=1", "B="}, home: true, args: []string{"C=3", "x"}},
		"--user=#33 --group sys id":      {user: "#33", group: "sys", args: []string{"id"}},
		"-E --preserve-env=A,B -b -C9 x": {keepAll: true, keep: []string{"A", "B"}, background: true, args: []string{"x"}},
		"-S -p Password: x":              {args: []string{"x"}},
		"-i":                             {login: true},
		"-i -- a b":                      {login: true, args: []string{"a", "b"}},
		"-s":                             {shell: true},
		"-k":                             {forget: true},
		"-kn x":                          {forget: true, args: []string{"x"}},
		"-l x":                           {mode: 'l', args: []string{"x"}},
		"-V":                             {mode: 'V'},
		"--help":                         {mode: 'h'},
		"./a=b":                          {args: []string{"./a=b"}},
	} {
		if got, err := parse(strings.Fields(line)); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %+v, %v", line, got, err)
		}
	}
	for line, want := range map[string]string{
		"":          "usage",
		"-n":        "usage",
		"A=1":       "usage",
		"-u":        "option requires an argument -- 'u'",
		"--user":    "option '--user' requires an argument",
		"--login=x": "option '--login' doesn't allow an argument",
		"-X x":      "invalid option -- 'X'",
		"--no x":    "unrecognized option '--no'",
		"-i -s":     "only one of",
		"-i -E":     "you may not specify both",
		"-v x":      "usage",
		"-K -v":     "usage",
		"-R / x":    "you are not permitted to use the -R option",
		"-e /x":     "you are not permitted to use the -e option",
	} {
		if _, err := parse(strings.Fields(line)); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%s: %v, want %s", line, err, want)
		}
	}
	if _, err := parse([]string{""}); err == nil || errors.Is(err, errUsage) {
		t.Errorf("empty command: %v", err)
	}
	if _, err := parse([]string{"-u", "", "x"}); !errors.Is(err, errUsage) {
		t.Errorf("empty user: %v", err)
	}
}

// testSystem returns a system with a few users, called by uid.
func testSystem(t *testing.T, uid int, env ...string) *system {
	t.Helper()
	s := &system{etc: t.TempDir(), uid: uid, gid: uid, env: env}
	for name, text := range map[string]string{
		"passwd": "root:*:0:0::/root:/bin/bash\nuser:*:1000:1000::/home/user:/bin/sh\nwww-data:*:33:33::/var/www:\n#7:*:70:70::/:\nbad:*:x:1::/:\nshort:*:1:1\n",
		"group":  "root:*:0:\nuser:*:1000:\nwww-data:*:33:\nsudo:*:27:user,other\nshared:*:50:www-data,user\n",
	} {
		if err := os.WriteFile(filepath.Join(s.etc, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

func TestPolicy(t *testing.T) {
	for _, tt := range []struct {
		uid   int
		c     call
		to    string
		gid   int
		fails string
	}{
		{1000, call{}, "root", 0, ""},
		{0, call{user: "user"}, "user", 1000, ""},
		{1000, call{user: "#33"}, "www-data", 33, ""},
		{1000, call{user: "#7"}, "#7", 70, ""},
		{1000, call{group: "shared"}, "user", 50, ""},
		{1000, call{user: "root", group: "#27"}, "root", 27, ""},
		{1000, call{user: "nobody"}, "", 0, "unknown user nobody"},
		{1000, call{user: "#-1"}, "", 0, "unknown user #-1"},
		{1000, call{user: "bad"}, "", 0, "unknown user bad"},
		{1000, call{group: "none"}, "", 0, "unknown group none"},
		{33, call{}, "", 0, "www-data is not in the sudoers file."},
		{33, call{user: "www-data"}, "", 0, "www-data is not in the sudoers file."},
		{4711, call{}, "", 0, "you do not exist in the passwd database"},
	} {
		_, to, gid, err := testSystem(t, tt.uid).resolve(&tt.c)
		if err != nil {
			if err.Error() != tt.fails {
				t.Errorf("%d, %+v: %v, want %q", tt.uid, tt.c, err, tt.fails)
			}
			continue
		}
		if to.name != tt.to || gid != tt.gid || tt.fails != "" {
			t.Errorf("%d, %+v: %s in %d, want %s in %d or %q", tt.uid, tt.c, to.name, gid, tt.to, tt.gid, tt.fails)
		}
	}
	s := testSystem(t, 1000)
	user, _ := s.accountOf("user")
	if got := s.groupsOf(&user, 50); !slices.Equal(got, []int{50, 1000, 27}) {
		t.Errorf("groups %v", got)
	}
	for text, want := range map[string]bool{"      1000       1000          1\n": true, "0 268435456 65536\n": false, "0 0 4294967295\n": false, "": false} {
		if singleUser(text) != want {
			t.Errorf("singleUser(%q) = %v", text, !want)
		}
	}
}

func TestEnvironment(t *testing.T) {
	env := []string{
		"LD_PRELOAD=/x", "PATH=/evil", "HOME=/home/user", "TERM=xterm", "LANG=C.UTF-8", "LC_ALL=../x", "TZ=/etc/x", "PS1=() { x", "SECRET=1",
		"USER=user", "BASH_ENV=/x", "https_proxy=http://127.0.0.1:3128", "SHELL=/bin/sh", "SUDO_UID=7",
	}
	always := []string{"LANG=C.UTF-8", "LOGNAME=root", "PATH=" + securePath, "SUDO_COMMAND=/bin/x y", "SUDO_GID=1000", "SUDO_UID=1000", "SUDO_USER=user",
		"TERM=xterm", "USER=root", "https_proxy=http://127.0.0.1:3128"}
	for name, tt := range map[string]struct {
		c    call
		more []string
	}{
		"reset":          {call{}, []string{"HOME=/root", "MAIL=/var/mail/root", "SHELL=/bin/bash"}},
		"-E":             {call{keepAll: true}, []string{"HOME=/home/user", "LC_ALL=../x", "SECRET=1", "SHELL=/bin/sh", "TZ=/etc/x"}},
		"-E -H":          {call{keepAll: true, home: true}, []string{"HOME=/root", "LC_ALL=../x", "SECRET=1", "SHELL=/bin/sh", "TZ=/etc/x"}},
		"--preserve-env": {call{keep: []string{"SECRET", "HOME"}}, []string{"HOME=/home/user", "MAIL=/var/mail/root", "SECRET=1", "SHELL=/bin/bash"}},
		"NAME=value":     {call{env: []string{"SECRET=2", "LD_X=y"}}, []string{"HOME=/root", "LD_X=y", "MAIL=/var/mail/root", "SECRET=2", "SHELL=/bin/bash"}},
	} {
		s := testSystem(t, 1000, env...)
		from, to, _, err := s.resolve(&tt.c)
		if err != nil {
			t.Fatal(err)
		}
		want := slices.Sorted(slices.Values(slices.Concat(always, tt.more)))
		if got := s.environ(&tt.c, &from, &to, []string{"/bin/x", "y"}); !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
}

func TestCommand(t *testing.T) {
	s := testSystem(t, 1000, "SHELL=/bin/zsh")
	from, to, _, err := s.resolve(&call{})
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		c    call
		path string
		argv []string
	}{
		{call{login: true}, "/bin/bash", []string{"-bash"}},
		{call{login: true, args: []string{"a b", "$c", "d'", ""}}, "/bin/bash", []string{"-bash", "-c", `a\ b $c d\' `}},
		{call{shell: true, args: []string{"x-y_z/1"}}, "/bin/zsh", []string{"/bin/zsh", "-c", `x-y_z\/1`}},
		{call{args: []string{"/bin/sh", "-c", "x y"}}, "/bin/sh", []string{"/bin/sh", "-c", "x y"}},
	} {
		path, argv, err := s.command(&tt.c, &from, &to)
		if err != nil || path != tt.path || !slices.Equal(argv, tt.argv) {
			t.Errorf("%+v: %s %q, %v", tt.c, path, argv, err)
		}
	}
	for _, name := range []string{"no-such-command", "/etc", "/etc/passwd", "./sh"} {
		if _, _, err := s.command(&call{args: []string{name}}, &from, &to); err == nil || err.Error() != name+": command not found" {
			t.Errorf("%s: %v", name, err)
		}
	}
}
