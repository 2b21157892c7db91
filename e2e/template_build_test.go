package e2e_test

import (
	"bytes"
	"image/color"
	"image/png"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/millrace/millrace/e2e/rig"
)

// recipesVariable names the templates that TestRecipes builds, with commas: it
// takes minutes and hundreds of megabytes of Debian's packages each.
const recipesVariable = "MILLRACE_E2E_TEMPLATES"

// drawn is a page with a picture that is made by a program.
const drawn = `cat > /tmp/p.html <<'X'
<body style="background:#246"><canvas id=c width=600 height=400></canvas><script>
const x=document.getElementById('c').getContext('2d');x.fillStyle='#fa0';x.fillRect(0,0,600,400)</script>
X
`

// recipeChecks tells of each recipe that it works; what draws prints a PNG.
var recipeChecks = map[string]string{
	"standard": `python3 -c 'print(6*7)' && node -e 'console.log(6*7)' && git --version && sudo id -u && id -un`,
	"browser": drawn + `start-browser 9222 >/dev/null 2>&1 & for i in $(seq 100); do curl -sf http://127.0.0.1:9222/json/version && break; sleep 0.3; done
		curl -sf http://127.0.0.1:9222/json/version | grep -q Chrome && echo answers`,
	"canvas": drawn + `canvas-png /tmp/p.html /tmp/o.png 800x600 >/dev/null 2>&1; cat /tmp/o.png`,
	"cua": drawn + `start-desktop 1024x768 file:///tmp/p.html >/dev/null 2>&1 &
		for i in $(seq 60); do sleep 1; DISPLAY=:0 xdotool search --onlyvisible --class chromium >/dev/null 2>&1 && break; done
		sleep 10; DISPLAY=:0 scrot -o /tmp/o.png >/dev/null 2>&1; cat /tmp/o.png`,
}

// Each template that is asked for is built by its one command, and works.
func TestRecipes(t *testing.T) {
	names := strings.FieldsFunc(os.Getenv(recipesVariable), func(r rune) bool { return r == ',' })
	if len(names) == 0 {
		t.Skipf("%s names none", recipesVariable)
	}
	s := rig.NewSplit(t, rig.Topology{Driver: "namespace"})
	a := s.APIs[0]
	for _, name := range names {
		t.Run(name, func(t *testing.T) {
			client(t, a, "template", "build", name)
			if name == "desktop" {
				runNode(t, a, "desktop.mjs")
				return
			}
			box := a.Create(t, "templateID", name)
			run := a.StartStream(t, box.ID, recipeChecks[name]).All(t)
			out := run.Stdout()
			if !slices.Contains([]string{"canvas", "cua"}, name) {
				t.Logf("%s", out)
				if run.End == nil || out == "" || name == "standard" && !strings.HasSuffix(out, "0\nuser\n") {
					t.Errorf("%q %q", out, run.Out["stderr"])
				}
				return
			}
			img, err := png.Decode(bytes.NewReader([]byte(out)))
			if err != nil {
				t.Fatalf("%d bytes: %v; %s", len(out), err, run.Out["stderr"])
			}
			if n := orange(img.At, img.Bounds().Dx(), img.Bounds().Dy()); n < 100_000 {
				t.Errorf("%d pixels of %v are as they were drawn", n, img.Bounds())
			}
		})
	}
}

// orange counts the pixels that have the drawing's colour.
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
