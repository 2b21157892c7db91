package deictic

import (
	"bytes"
	"context"
	"encoding/base64"
	"image"
	"image/color"
	"image/png"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/millrace/millrace/services/hostd/internal/desktop"
)

// drawnScreen is a screenshot: blue, with a red area of 300x300 pixels at 600,300.
func drawnScreen(t *testing.T) []byte {
	t.Helper()
	img := image.NewRGBA(image.Rect(0, 0, desktop.Width, desktop.Height))
	for y := range desktop.Height {
		for x := range desktop.Width {
			c := color.RGBA{B: 0xff, A: 0xff}
			if x >= 600 && x < 900 && y >= 300 && y < 600 {
				c = color.RGBA{R: 0xff, A: 0xff}
			}
			img.SetRGBA(x, y, c)
		}
	}
	var b bytes.Buffer
	if err := png.Encode(&b, img); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// pictures returns the pictures in a request.
func pictures(t *testing.T, vendor, body string) (all []image.Image) {
	t.Helper()
	pattern := `"image_url":\{"url":"data:image/png;base64,([^"]+)"\}`
	if vendor == "anthropic" {
		pattern = `\{"type":"image","source":\{"type":"base64","media_type":"image/png","data":"([^"]+)"\}\}`
	}
	for _, m := range regexp.MustCompile(pattern).FindAllStringSubmatch(body, -1) {
		raw, err := base64.StdEncoding.DecodeString(m[1])
		if err != nil {
			t.Fatal(err)
		}
		img, err := png.Decode(bytes.NewReader(raw))
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, img)
	}
	return all
}

// E-203, E-222 to E-225: in a sandbox with a desktop the model sees it, and uses it by positions in what it sees. The
// client gets each screenshot as it was captured.
func TestTheModelUsesTheDesktop(t *testing.T) {
	captured := drawnScreen(t)
	for _, vendor := range vendors {
		t.Run(string(vendor), func(t *testing.T) {
			script := []step{{tool: "mouse_click", args: `{"x":640,"y":719,"count":2}`}, {tool: "mouse_move", args: `{"x":1280,"y":0}`}, {tool: "locate_element", args: `{}`}}
			for range maxPictures + 2 {
				script = append(script, step{tool: "screenshot", args: `{}`})
			}
			s := newScripted(t, append(script, step{text: "done"})...)
			r := newRun(t, s, map[string]string{"LLM_VENDOR": string(vendor)})
			var calls []string
			r.desktop = func(_ context.Context, name string, args []byte) (desktop.Result, error) {
				calls = append(calls, name+string(args))
				switch name {
				case "screenshot":
					return desktop.Result{PNG: captured}, nil
				case "locate_element":
					return desktop.Result{Elements: []desktop.Element{{Kind: "icon", X: 750, Y: 450, Box: [4]int{600, 300, 900, 600}}}}, nil
				}
				return desktop.Result{}, nil
			}
			_, all := r.say(t, "look")
			if len(calls) != 4+maxPictures || calls[0] != `mouse_click{"count":2,"x":960,"y":1079}` {
				t.Errorf("got %q", calls)
			}
			results := find(all, "tool_result")
			if len(results) != 5+maxPictures || !results[1].Failed || !strings.Contains(*results[2].Output, `"x":500,"y":300,"box":[400,200,600,400]`) {
				t.Fatalf("got %+v", results)
			}
			if len(r.captured) != maxPictures+2 || !bytes.Equal(r.captured[0], captured) {
				t.Errorf("the client got %d pictures", len(r.captured))
			}
			requests := s.requests()
			for i, body := range requests {
				got := pictures(t, string(vendor), body)
				if want := min(max(i-3, 0), maxPictures); len(got) != want {
					t.Errorf("request %d has %d pictures, want %d", i, len(got), want)
				}
				for _, img := range got {
					if b := img.Bounds(); b.Dx() != shownWidth || b.Dy() != shownHeight {
						t.Errorf("the picture has the bounds %v", b)
					}
					for _, p := range []struct {
						x, y int
						red  bool
					}{{399, 300, false}, {401, 300, true}, {599, 399, true}, {601, 300, false}, {500, 199, false}, {500, 201, true}} {
						if r, _, _, _ := img.At(p.x, p.y).RGBA(); (r == 0xffff) != p.red {
							t.Errorf("the pixel %d,%d is red: %v", p.x, p.y, !p.red)
						}
					}
				}
			}
			for _, name := range []string{"screenshot", "mouse_click", "keyboard_type", "press_key", "scroll", "locate_element", "shell_exec"} {
				if !strings.Contains(requests[0], `"name":"`+name+`"`) {
					t.Errorf("the model has no tool %s", name)
				}
			}
			record, err := os.ReadFile(filepath.Join(r.home, ".deictic/history.jsonl"))
			if err != nil || len(record) > 64<<10 {
				t.Errorf("the record has %d bytes, %v", len(record), err)
			}
		})
	}
}

// Only a sandbox with a desktop has its tools, and only an agent that may run commands or names them.
func TestWhoHasTheDesktop(t *testing.T) {
	for _, tt := range []struct {
		environ []string
		values  map[string]string
		want    bool
	}{
		{nil, nil, false},
		{[]string{"DISPLAYS=:0"}, map[string]string{"CUA_ENABLED": "false"}, false},
		{[]string{"DISPLAY=:0"}, nil, true},
		{nil, map[string]string{"CUA_ENABLED": "true"}, true},
	} {
		if got := hasDesktop(tt.environ, tt.values); got != tt.want {
			t.Errorf("%v, %v: %v", tt.environ, tt.values, got)
		}
	}
	for _, tt := range []struct {
		screen *screen
		names  []string
		tools  int
	}{
		{nil, nil, len(defaultTools)},
		{&screen{}, nil, len(defaultTools) + len(screenTools)},
		{&screen{}, []string{"read_file"}, 1},
		{&screen{}, []string{"screenshot"}, 1},
		{nil, []string{"screenshot"}, 0},
	} {
		if got, _ := (&toolbox{screen: tt.screen}).tools(tt.names); len(got) != tt.tools {
			t.Errorf("%v: %d tools", tt.names, len(got))
		}
	}
}
