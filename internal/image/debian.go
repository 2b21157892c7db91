package image

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"
)

// Recipe describes a template built from Debian packages.
type Recipe struct {
	About    string
	Packages []string
	Env      map[string]string
	Files    map[string]string // by path in the tree

	MCPGateway bool // install mcp-gateway
}

// base lists the packages of every recipe.
var base = []string{"ca-certificates", "curl", "procps", "sudo"}

var standard = []string{
	"bash-completion", "git", "iproute2", "nodejs", "esbuild", "python3", "python-is-python3", "python3-pip", "python3-venv", "vim-tiny", "less", "unzip", "xz-utils",
}

var desktop = []string{"chromium", "fonts-dejavu-core", "fonts-liberation", "python3-minimal", "python-is-python3"}

// recipes maps names to the templates that can be built.
var recipes = map[string]Recipe{
	"standard": {
		About:    "Debian with git, Python, Node.js and TypeScript",
		Packages: standard,
	},
	"code-interpreter": {
		About: "standard, and all languages of npm @e2b/code-interpreter with pandas, matplotlib, R and Java (1.7 GiB)",
		Packages: append([]string{
			"python3-numpy", "python3-pandas", "python3-matplotlib", "r-base-core", "default-jdk-headless", "fonts-dejavu-core",
		}, standard...),
	},
	"mcp-gateway": {
		About:      "standard, npm, and the gateway that npm e2b starts in sandboxes created with mcp",
		Packages:   append([]string{"npm"}, standard...),
		MCPGateway: true,
	},
	"browser": {
		About: "headless Chromium, controlled over its debugging port", Packages: desktop,
		Files: map[string]string{"usr/local/bin/start-browser": startBrowser},
	},
	"cua": {
		About: "a desktop for computer-use agents: Xvfb, fluxbox, Chromium, xdotool, scrot",
		Packages: append([]string{
			"xvfb", "fluxbox", "xdotool", "scrot", "x11-utils", "xauth", "dbus", "x11vnc", "xclip",
		}, desktop...),
		Env:   map[string]string{"DISPLAY": ":0"},
		Files: map[string]string{"usr/local/bin/start-desktop": startDesktop, "usr/local/bin/fbsetbg": setBackground, "etc/X11/fluxbox/init": fluxboxInit},
	},
	"desktop": {
		About: "a desktop for npm @e2b/desktop: Xvfb, Xfce, Chromium, xdotool, scrot, x11vnc, noVNC",
		Packages: append([]string{
			"xvfb", "xfce4-session", "xfwm4", "xfdesktop4", "xfce4-panel", "xfce4-settings", "xfce4-terminal", "thunar", "mousepad",
			"dbus-x11", "xdotool", "scrot", "x11-utils", "x11-xserver-utils", "xauth", "xclip", "xdg-utils", "libgtk-3-bin",
			"x11vnc", "novnc", "net-tools",
		}, desktop...),
		Env: map[string]string{"DISPLAY": ":0"},
		Files: map[string]string{
			"etc/chromium.d/sandboxed":                     "export CHROMIUM_FLAGS=\"$CHROMIUM_FLAGS " + sandboxed + " --test-type\"\n",
			"usr/share/applications/google-chrome.desktop": chromeEntry,
			"opt/noVNC/utils/novnc_proxy":                  startNoVNC,
			"etc/xdg/xfce4/kiosk/kioskrc":                  "[xfce4-session]\nSaveSession=NONE\n",
		},
	},
	"canvas": {
		About: "Chromium that renders a page to a PNG", Packages: desktop,
		Files: map[string]string{"usr/local/bin/canvas-png": canvasPNG},
	},
}

// sandboxed holds the flags for Chromium in a sandbox, where it cannot create its own.
const sandboxed = "--no-sandbox --no-zygote --disable-dev-shm-usage --disable-crash-reporter --disable-breakpad --disable-gpu --no-first-run"

const startBrowser = `#!/bin/sh
# Runs headless Chromium with its debugging protocol at port ${1:-9222}.
exec chromium --headless=new ` + sandboxed + ` --remote-debugging-port="${1:-9222}" --user-data-dir="${HOME:-/tmp}/.browser" about:blank
`

const canvasPNG = `#!/bin/sh
# canvas-png PAGE.html OUT.png [WIDTHxHEIGHT] renders a page to a PNG.
set -eu
size=${3:-1280x720}
exec chromium --headless=new ` + sandboxed + ` --user-data-dir="$(mktemp -d)" --hide-scrollbars --virtual-time-budget=5000 \
	--window-size="${size%x*},${size#*x}" --screenshot="$(realpath "$2")" "file://$(realpath "$1")"
`

const startDesktop = `#!/bin/sh
# start-desktop [WIDTHxHEIGHT [URL]] starts a screen, a window manager and Chromium,
# and runs until Chromium exits.
size=${1:-1920x1080}
export DISPLAY=:0
Xvfb :0 -screen 0 "${size}x24" -nolisten tcp >/dev/null 2>&1 &
while ! xdpyinfo >/dev/null 2>&1; do sleep 0.05; done
fluxbox -rc /etc/X11/fluxbox/init >/dev/null 2>&1 &
exec chromium ` + sandboxed + ` --remote-debugging-port=9222 --user-data-dir="${HOME:-/tmp}/.browser" --window-position=0,0 --window-size="${size%x*},${size#*x}" --test-type "${2:-about:blank}"
`

// chromeEntry is a desktop entry of the browser, by the name that E2B's programs launch.
const chromeEntry = "[Desktop Entry]\nType=Application\nName=Chromium\nExec=/usr/bin/chromium %U\nIcon=chromium\n"

// startNoVNC runs noVNC from the path of E2B's template; the last --web takes effect.
const startNoVNC = "#!/bin/sh\nexec /usr/share/novnc/utils/novnc_proxy \"$@\" --web /usr/share/novnc\n"

// setBackground keeps fluxbox from showing a dialog about a missing wallpaper program.
const setBackground = "#!/bin/sh\nexit 0\n"

const fluxboxInit = `session.screen0.toolbar.visible: true
session.styleFile: /usr/share/fluxbox/styles/Emerge
session.menuFile: /etc/X11/fluxbox/fluxbox-menu
session.keyFile: /etc/X11/fluxbox/keys
`

// Recipes returns the names and descriptions of the templates that can be built.
func Recipes() map[string]string {
	out := map[string]string{}
	for name, r := range recipes {
		out[name] = r.About
	}
	return out
}

// Build holds the options of a build from Debian packages. The zero value of a field is
// its default.
type Build struct {
	Suite   string   // Debian release; default this machine's if it runs Debian, else bookworm
	Mirror  string   // package mirror; default this machine's if it runs the suite, else Debian's
	Add     []string // additional packages
	Scratch string   // empty directory; required
	Say     func(line string)

	// MCPGateway returns the path of the mcp-gateway program; required for recipes with it.
	MCPGateway func(ctx context.Context) (string, error)
}

const (
	debianMirror = "http://deb.debian.org/debian"
	defaultSuite = "bookworm"
)

// manuals creates a directory that some packages, such as the JDK, require at
// installation, although manual pages are excluded.
const manuals = `mkdir -p "$1/usr/share/man/man1"`

// Debian builds a recipe with mmdebstrap and returns the image and files to add to it.
func Debian(ctx context.Context, name string, b Build) (*Image, map[string]string, error) {
	r, ok := recipes[name]
	if !ok {
		return nil, nil, invalid("recipe %q does not exist; choose from %s", name, strings.Join(slices.Sorted(maps.Keys(recipes)), ", "))
	}
	own := map[string]string{}
	if r.MCPGateway { // first, because the packages take minutes
		path, err := b.MCPGateway(ctx)
		if err != nil {
			return nil, nil, err
		}
		program, err := os.ReadFile(path)
		if err != nil {
			return nil, nil, err
		}
		own["usr/local/bin/mcp-gateway"] = string(program)
	}
	file := filepath.Join(b.Scratch, "root.tar")
	suite, sources := b.sources()
	packages := slices.Concat(base, r.Packages, b.Add)
	args := append([]string{
		"--variant=minbase", "--format=tar", "--include=" + strings.Join(packages, ","),
		"--aptopt=APT::Install-Recommends \"false\"", "--dpkgopt=path-exclude=/usr/share/man/*",
		"--dpkgopt=path-exclude=/usr/share/doc/*", "--essential-hook=" + manuals, "--dpkgopt=path-include=/usr/share/doc/*/copyright", suite, file,
	}, sources...)
	if err := run(ctx, b, "mmdebstrap", args); err != nil {
		return nil, nil, err
	}
	files := map[string]string{
		"etc/apt/sources.list":                  "deb " + debianMirror + " " + suite + " main\n",
		"etc/apt/sources.list.d/debian.sources": "", // this machine's configuration
		"etc/apt/apt.conf.d/99mmdebstrap":       "",
		"etc/pip.conf":                          "[global]\nbreak-system-packages = true\n", // as in E2B's templates
	}
	maps.Copy(files, r.Files)
	maps.Copy(files, own)
	return &Image{
		Layers: []Layer{{Open: func() (io.ReadCloser, error) { return os.Open(file) }}},
		Facts:  Facts{Arch: runtime.GOARCH, Env: r.Env, Sudo: true},
	}, files, nil
}

// sources returns the suite and mmdebstrap's arguments for the package sources.
func (b *Build) sources() (suite string, sources []string) {
	here := ""
	if text, err := os.ReadFile("/etc/os-release"); err == nil && strings.Contains(string(text), "\nID=debian\n") {
		for line := range strings.Lines(string(text)) {
			if v, ok := strings.CutPrefix(strings.TrimSpace(line), "VERSION_CODENAME="); ok {
				here = v
			}
		}
	}
	suite = cmp.Or(b.Suite, here, defaultSuite)
	if b.Mirror != "" {
		return suite, []string{b.Mirror}
	}
	if suite == here {
		for _, f := range []string{"/etc/apt/sources.list", "/etc/apt/sources.list.d/debian.sources"} {
			if fi, err := os.Stat(f); err == nil && fi.Size() > 0 {
				sources = append(sources, f)
			}
		}
	}
	if len(sources) == 0 {
		sources = []string{debianMirror}
	}
	return suite, sources
}

// run runs a build program and reports its progress lines to b.Say.
func run(ctx context.Context, b Build, program string, args []string) error {
	if _, err := exec.LookPath(program); err != nil {
		return fmt.Errorf("%s is not installed: on Debian, `apt-get install %s` (or import an image: `millrace template import`)", program, program)
	}
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Env = append(os.Environ(), "TMPDIR="+b.Scratch, "LC_ALL=C.UTF-8")
	// mmdebstrap removes its temporary files on SIGTERM.
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 30 * time.Second
	out, err := cmd.StderrPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	var last []string
	for lines := bufio.NewScanner(out); lines.Scan(); {
		line := strings.TrimSpace(lines.Text())
		if b.Say != nil && strings.HasPrefix(line, "I: ") {
			b.Say(strings.TrimPrefix(line, "I: "))
		}
		const keep = 12
		if last = append(last, line); len(last) > keep {
			last = last[1:]
		}
	}
	if err := cmd.Wait(); err != nil {
		return errors.Join(ctx.Err(), fmt.Errorf("%s: %w\n%s", program, err, strings.Join(last, "\n")))
	}
	return nil
}
