package e2e_test

import (
	"fmt"
	"image/color"
	"image/png"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/e2e/rig"
)

// recipesVariable lists the templates for TestRecipes, separated by commas: each takes
// minutes and downloads hundreds of megabytes of Debian packages.
const recipesVariable = "MILLRACE_E2E_TEMPLATES"

// drawn is a page with a drawing made by a script.
const drawn = `cat > /tmp/p.html <<'X'
<body style="background:#246"><canvas id=c width=600 height=400></canvas><script>
const x=document.getElementById('c').getContext('2d');x.fillStyle='#fa0';x.fillRect(0,0,600,400)</script>
X
`

// A recipe's check is a command to start first (may be empty), a command to retry until the
// template works, and its expected output; a PNG must show the drawing.
var recipeChecks = map[string]struct{ begin, try, shows string }{
	"standard":         {"", `python3 -c 'print(6*7)' && node -e 'console.log(6*7)' && git --version && sudo id -u && id -un`, "0\nuser\n"},
	"code-interpreter": {"", `python3 -c 'import pandas, matplotlib' && R --version >/dev/null && echo 'int x = 2; x' | jshell -s && echo has`, "has\n"},
	"mcp-gateway":      {"", `mcp-gateway pull exa 2>&1 | grep -o 'Docker images'; npm --version >/dev/null && git --version >/dev/null && echo has`, "Docker images\nhas\n"},
	"browser":          {"start-browser 9222 >/dev/null 2>&1", `curl -sf http://127.0.0.1:9222/json/version | grep -q Chrome && echo answers`, "answers\n"},
	"canvas":           {"", drawn + `canvas-png /tmp/p.html /tmp/o.png 800x600 >/dev/null 2>&1; cat /tmp/o.png`, "PNG"},
	"cua": {drawn + "start-desktop 1024x768 file:///tmp/p.html >/dev/null 2>&1",
		`DISPLAY=:0 xdotool search --onlyvisible --class chromium >/dev/null 2>&1 && DISPLAY=:0 scrot -o /tmp/o.png >/dev/null 2>&1; cat /tmp/o.png`, "PNG"},
}

// Each listed template can be built by one command and works with every available driver.
func TestRecipes(t *testing.T) {
	names := strings.FieldsFunc(os.Getenv(recipesVariable), func(r rune) bool { return r == ',' })
	if len(names) == 0 {
		t.Skipf("%s is not set", recipesVariable)
	}
	top, levels := rig.Topology{Driver: "namespace"}, map[string]string{"namespace": "process"}
	if gvisorHere(t) {
		top.Driver, levels["gvisor"] = "namespace,gvisor", "kernel"
	}
	s := rig.NewSplit(t, top)
	a := s.APIs[0]
	for _, name := range names {
		client(t, a, "template", "build", name)
		if name == "desktop" {
			t.Run(name, func(t *testing.T) { runNode(t, a, "desktop.mjs") })
			continue
		}
		if name == "cua" {
			t.Run("session of "+name, func(t *testing.T) { browses(t, a) })
		}
		for driver, level := range levels {
			t.Run(name+" with "+driver, func(t *testing.T) {
				box := a.Create(t, "templateID", name, "isolation", level, "timeout", 3600).ID
				works(t, a, name, box)
				if name == "code-interpreter" {
					checkAllLanguages(t, interpreter{a, box})
				}
			})
		}
	}
}

// checkAllLanguages runs code in every language.
func checkAllLanguages(t *testing.T, in interpreter) {
	t.Helper()
	for language, checks := range languageChecks {
		in.checkLanguage(t, language, checks)
	}
	in.draws(t)
	if got := summarize(in.run(t, "const fs = require('fs'); fs.existsSync('/')", "language", "js")); got != "=true\n" {
		t.Errorf("js: %q", got)
	}
}

// works waits until the check of a recipe succeeds in a sandbox.
func works(t *testing.T, a *rig.API, name, box string) {
	t.Helper()
	check := recipeChecks[name]
	if check.begin != "" {
		a.StartStream(t, box, check.begin)
	}
	begun := time.Now()
	var last, shot string
	good := rig.Poll(4*time.Minute, func() bool {
		run := a.StartStream(t, box, check.try).All(t)
		last = fmt.Sprintf("%d bytes, %q, %+v", len(run.Stdout()), run.Out["stderr"], run.End)
		if check.shows != "PNG" {
			return strings.HasSuffix(run.Stdout(), check.shows)
		}
		img, err := png.Decode(strings.NewReader(run.Stdout()))
		shot = run.Stdout()
		return err == nil && orange(img.At, img.Bounds().Dx(), img.Bounds().Dy()) >= 100_000
	})
	if dir := os.Getenv(shotsVariable); dir != "" && shot != "" {
		must(t, os.WriteFile(filepath.Join(dir, "recipe-"+name+".png"), []byte(shot), 0o600))
	}
	if !good {
		t.Errorf("it does not work: %s", last)
	}
	t.Logf("it works after %v: %s", time.Since(begun).Round(time.Millisecond), last)
}

// orange returns the number of pixels with the drawing's color.
func orange(at func(x, y int) color.Color, width, height int) int {
	n := 0
	for y := range height {
		for x := range width {
			if r, g, b, _ := at(x, y).RGBA(); r>>8 == 0xff && g>>8 == 0xaa && b>>8 == 0 {
				n++
			}
		}
	}
	return n
}
