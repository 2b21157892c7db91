//go:build linux

package sudo

import (
	"errors"
	"fmt"
	"strings"
)

// call is a parsed command line.
type call struct {
	mode byte // the option that selects an action, one of modes; 0: run a command

	user, group string
	login       bool // -i
	shell       bool // -s
	home        bool // -H
	keepAll     bool // -E
	background  bool // -b
	forget      bool // -k

	keep []string // names of variables to keep
	env  []string // NAME=value
	args []string // the command
}

const (
	modes   = "hKlVv" // actions other than running a command
	flags   = "ABbEeHhiKklNnPSsVv"
	valued  = "aCcDgpRrTtUu"
	refused = "aceDRrTtU"
)

// long returns the long names of the options.
func long() map[string]byte {
	return map[string]byte{
		"askpass": 'A', "auth-type": 'a', "background": 'b', "bell": 'B', "chdir": 'D', "chroot": 'R', "close-from": 'C',
		"command-timeout": 'T', "edit": 'e', "group": 'g', "help": 'h', "list": 'l', "login": 'i', "login-class": 'c',
		"no-update": 'N', "non-interactive": 'n', "other-user": 'U', "preserve-env": 'E', "preserve-groups": 'P',
		"prompt": 'p', "remove-timestamp": 'K', "reset-timestamp": 'k', "role": 'r', "set-home": 'H', "shell": 's',
		"stdin": 'S', "type": 't', "user": 'u', "validate": 'v', "version": 'V',
	}
}

// errUsage reports an invalid command line.
var errUsage = errors.New("usage")

// parse parses a command line without the program's name. Options end at the first word
// that is neither an option nor NAME=value.
func parse(args []string) (call, error) {
	var c call
	for len(args) > 0 {
		word := args[0]
		name, _, isEnv := strings.Cut(word, "=")
		var err error
		switch {
		case word == "--":
			c.args = args[1:]
			return c, c.check()
		case strings.HasPrefix(word, "--"):
			args, err = c.long(word[2:], args[1:])
		case len(word) > 1 && word[0] == '-':
			args, err = c.short(word[1:], args[1:])
		case isEnv && name != "" && !strings.Contains(name, "/"):
			c.env, args = append(c.env, word), args[1:]
		default:
			c.args = args
			return c, c.check()
		}
		if err != nil {
			return c, err
		}
	}
	return c, c.check()
}

// short parses a word of one-letter options; rest are the words after it.
func (c *call) short(word string, rest []string) ([]string, error) {
	for i := range len(word) {
		o := word[i]
		if strings.IndexByte(flags, o) >= 0 {
			if err := c.option(o, ""); err != nil {
				return nil, err
			}
			continue
		}
		if strings.IndexByte(valued, o) < 0 {
			return nil, fmt.Errorf("invalid option -- '%c'%w", o, &usageError{})
		}
		value := word[i+1:]
		if value == "" {
			if len(rest) == 0 {
				return nil, fmt.Errorf("option requires an argument -- '%c'%w", o, &usageError{})
			}
			value, rest = rest[0], rest[1:]
		}
		return rest, c.option(o, value)
	}
	return rest, nil
}

// long parses an option without its leading dashes.
func (c *call) long(word string, rest []string) ([]string, error) {
	name, value, has := strings.Cut(word, "=")
	o, ok := long()[name]
	switch {
	case !ok:
		return nil, fmt.Errorf("unrecognized option '--%s'%w", name, &usageError{})
	case o == 'E' && has:
		c.keep = append(c.keep, strings.Split(value, ",")...)
		return rest, nil
	case strings.IndexByte(flags, o) >= 0 && has:
		return nil, fmt.Errorf("option '--%s' doesn't allow an argument%w", name, &usageError{})
	case strings.IndexByte(valued, o) >= 0 && !has:
		if len(rest) == 0 {
			return nil, fmt.Errorf("option '--%s' requires an argument%w", name, &usageError{})
		}
		value, rest = rest[0], rest[1:]
	}
	return rest, c.option(o, value)
}

// option applies an option. Options about passwords, which are not used, have no effect.
func (c *call) option(o byte, value string) error {
	switch {
	case strings.IndexByte(refused, o) >= 0:
		return fmt.Errorf("you are not permitted to use the -%c option", o)
	case strings.IndexByte(modes, o) >= 0:
		if c.mode != 0 && c.mode != o {
			return errUsage
		}
		c.mode = o
	}
	switch o {
	case 'u':
		c.user = value
	case 'g':
		c.group = value
	case 'b':
		c.background = true
	case 'E':
		c.keepAll = true
	case 'H':
		c.home = true
	case 'i':
		c.login = true
	case 'k':
		c.forget = true
	case 's':
		c.shell = true
	}
	if (o == 'u' || o == 'g') && value == "" {
		return errUsage
	}
	return nil
}

// check rejects contradictory and empty command lines.
func (c *call) check() error {
	what := 0
	for _, set := range []bool{c.login, c.shell, c.mode != 0} {
		if set {
			what++
		}
	}
	switch {
	case what > 1:
		return fmt.Errorf("only one of the -h, -i, -K, -l, -s, -v or -V options may be specified%w", &usageError{})
	case c.login && c.keepAll:
		return fmt.Errorf("you may not specify both the -i and -E options%w", &usageError{})
	case c.mode != 0 && c.mode != 'l' && len(c.args) > 0:
		return errUsage
	case what == 0 && len(c.args) == 0 && (!c.forget || len(c.env) > 0):
		return errUsage
	case len(c.args) > 0 && c.args[0] == "":
		return errors.New(": command not found")
	}
	return nil
}

// usageError is an errUsage without a text of its own.
type usageError struct{}

func (*usageError) Error() string        { return "" }
func (*usageError) Is(target error) bool { return target == errUsage }

const usage = `usage: sudo -h | -K | -k | -V
usage: sudo -v [-knS] [-g group] [-u user]
usage: sudo -l [-knS] [-g group] [-u user] [command [arg ...]]
usage: sudo [-bEHiknPSs] [-C num] [-g group] [-p prompt] [-u user] [VAR=value] [command [arg ...]]
`

const version = "Sudo version 1.9 (Millrace's own)\n"
