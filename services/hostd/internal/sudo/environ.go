//go:build linux

package sudo

import (
	"slices"
	"strconv"
	"strings"
)

const securePath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// keepByDefault reports whether a variable is kept: those that Debian's sudo keeps, and those of the
// egress proxy and its certificate, without which root would have no network.
func keepByDefault(name string) bool {
	switch name {
	case "COLORS", "DISPLAY", "HOSTNAME", "KRB5CCNAME", "LS_COLORS", "PS1", "PS2", "XAUTHORITY", "XAUTHORIZATION", "XDG_CURRENT_DESKTOP",
		"http_proxy", "https_proxy", "all_proxy", "no_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY",
		"NODE_EXTRA_CA_CERTS", "SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "GIT_SSL_CAINFO":
		return true
	}
	return needsSafeValue(name)
}

// needsSafeValue reports whether a variable is kept only with a value that names no file or
// format.
func needsSafeValue(name string) bool {
	switch name {
	case "COLORTERM", "LANG", "LANGUAGE", "LINGUAS", "TERM", "TZ":
		return true
	}
	return strings.HasPrefix(name, "LC_")
}

// dangerous reports whether a variable can make programs load code or trust its content: -E
// does not keep it.
func dangerous(name string) bool {
	switch name {
	case "IFS", "CDPATH", "LOCALDOMAIN", "RES_OPTIONS", "HOSTALIASES", "NLSPATH", "PATH_LOCALE", "GCONV_PATH", "GETCONF_DIR",
		"TERMINFO", "TERMINFO_DIRS", "TERMPATH", "TERMCAP", "ENV", "BASH_ENV", "PS4", "GLOBIGNORE", "BASHOPTS", "SHELLOPTS",
		"JAVA_TOOL_OPTIONS", "PERLIO_DEBUG", "PERLLIB", "PERL5LIB", "PERL5OPT", "PERL5DB", "FPATH", "NULLCMD", "READNULLCMD",
		"ZDOTDIR", "TMPPREFIX", "PYTHONHOME", "PYTHONPATH", "PYTHONINSPECT", "PYTHONUSERBASE", "RUBYLIB", "RUBYOPT",
		"GOTRACEBACK": // set here by Go
		return true
	}
	return strings.HasPrefix(name, "LD_") || strings.HasPrefix(name, "BASH_FUNC_") ||
		strings.HasPrefix(name, "SUDO_")
}

// safeValue reports whether a checked value does not lead to a file.
func safeValue(name, value string) bool {
	if name == "TZ" {
		return !strings.HasPrefix(value, "/") && !strings.HasPrefix(value, ":") && !strings.Contains(value, "..")
	}
	return !strings.ContainsAny(value, "/%")
}

// environ returns the command's environment.
func (s *system) environ(c *call, from, to *account, command []string) []string {
	env := map[string]string{}
	for _, v := range s.env {
		name, value, _ := strings.Cut(v, "=")
		keep := c.keepAll && !dangerous(name) || keepByDefault(name) && !(needsSafeValue(name) && !safeValue(name, value))
		if keep && name != "" && !strings.HasPrefix(value, "() ") {
			env[name] = value
		}
	}
	if _, ok := env["HOME"]; !ok || c.home {
		env["HOME"] = to.home
	}
	if !c.keepAll {
		env["SHELL"], env["MAIL"] = to.shell, "/var/mail/"+to.name
	}
	if env["TERM"] == "" {
		env["TERM"] = "unknown"
	}
	env["PATH"], env["USER"], env["LOGNAME"] = securePath, to.name, to.name
	env["SUDO_USER"], env["SUDO_UID"], env["SUDO_GID"] = from.name, strconv.Itoa(s.uid), strconv.Itoa(s.gid)
	env["SUDO_COMMAND"] = strings.Join(command, " ")
	for _, v := range s.env {
		if name, value, _ := strings.Cut(v, "="); slices.Contains(c.keep, name) {
			env[name] = value
		}
	}
	for _, v := range c.env {
		name, value, _ := strings.Cut(v, "=")
		env[name] = value
	}
	all := make([]string, 0, len(env))
	for name, value := range env {
		all = append(all, name+"="+value)
	}
	slices.Sort(all)
	return all
}
