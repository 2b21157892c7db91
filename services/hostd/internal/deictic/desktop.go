package deictic

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"image"
	"image/color"
	"image/draw"
	"image/png"
	"slices"
	"strings"

	"github.com/millrace/millrace/services/hostd/internal/deictic/llm"
	"github.com/millrace/millrace/services/hostd/internal/desktop"
)

// Size of the pictures that a model gets, and of the screen in its tools' coordinates. Vendors reduce larger
// pictures, by a factor of their own, and the model's coordinates would be those of the reduced picture.
const (
	shownWidth  = 1280
	shownHeight = 720
)

// Names in the environment and the configuration that show that a sandbox has a desktop.
const (
	displayVar = "DISPLAY"
	keyDesktop = "CUA_ENABLED"
)

// hasDesktop reports whether the sandbox has a desktop.
func hasDesktop(environ []string, values map[string]string) bool {
	return values[keyDesktop] == "true" ||
		slices.ContainsFunc(environ, func(v string) bool { return strings.HasPrefix(v, displayVar+"=") || v == keyDesktop+"=true" })
}

// useDesktop calls a tool of the desktop, as [desktop.Desktop.Do] does.
type useDesktop func(ctx context.Context, name string, args []byte) (desktop.Result, error)

// screen gives agents the tools of the sandbox's desktop, which another process runs.
type screen struct {
	do       useDesktop
	captured func(png []byte) // receives each screenshot as it was captured
}

// screenshotTool is the tool that returns a picture.
const screenshotTool = "screenshot"

const place = `"x":{"type":"integer","minimum":0,"maximum":1279},"y":{"type":"integer","minimum":0,"maximum":719}`

// screenTools describe the tools of the desktop, in the order in which a model gets them.
var screenTools = []struct{ name, about, properties, required string }{
	{screenshotTool, "Take a picture of the screen. Positions in all tools are pixels of this picture of 1280x720.", ``, ``},
	{"mouse_move", "Move the pointer.", place, `"x","y"`},
	{
		"mouse_click", "Click, where the pointer is or at a position.",
		place + `,"button":{"type":"string","enum":["left","middle","right","back","forward"]},"count":{"type":"integer","minimum":1,"maximum":3}`, ``,
	},
	{"keyboard_type", "Type a text.", `"text":{"type":"string"}`, `"text"`},
	{"press_key", "Press a key or a combination, such as Return or ctrl+l.", `"key":{"type":"string"}`, `"key"`},
	{
		"scroll", "Turn the wheel, where the pointer is or at a position.",
		place + `,"direction":{"type":"string","enum":["up","down","left","right"]},"amount":{"type":"integer","minimum":1,"maximum":100}`, `"direction"`,
	},
	{"locate_element", "Find texts and icons on the screen whose content contains a text; all without one.", `"query":{"type":"string"}`, ``},
}

// tool returns a tool of the desktop.
func (s *screen) tool(name string) (tool, bool) {
	for _, d := range screenTools {
		if d.name == name {
			return tool{
				Declaration: llm.Declaration{
					Name: name, Description: d.about,
					Schema: json.RawMessage(`{"type":"object","properties":{` + d.properties + `},"required":[` + d.required + `]}`),
				},
				run: func(ctx context.Context, args json.RawMessage) (output, error) { return s.use(ctx, name, args) },
			}, true
		}
	}
	return tool{}, false
}

// use calls a tool of the desktop.
func (s *screen) use(ctx context.Context, name string, args json.RawMessage) (output, error) {
	args, err := onScreen(args)
	if err != nil {
		return output{}, err
	}
	got, err := s.do(ctx, name, args)
	switch {
	case err != nil:
		return output{}, err
	case got.PNG != nil:
		s.captured(got.PNG)
		shown, err := reduced(got.PNG)
		return output{text: "A picture of the screen. It is replaced by this text when it is not among the latest pictures of the turn.", picture: shown}, err
	case got.Elements != nil:
		for i := range got.Elements {
			e := &got.Elements[i]
			e.X, e.Y = shownX(e.X), shownY(e.Y)
			e.Box = [4]int{shownX(e.Box[0]), shownY(e.Box[1]), shownX(e.Box[2]), shownY(e.Box[3])}
		}
		b, err := json.Marshal(got.Elements)
		return output{text: string(b)}, err
	}
	return output{text: "[done]"}, nil
}

func shownX(x int) int { return x * shownWidth / desktop.Width }
func shownY(y int) int { return y * shownHeight / desktop.Height }

// onScreen returns arguments with the position on the screen in place of that in the picture.
func onScreen(args json.RawMessage) (json.RawMessage, error) {
	var all map[string]any
	if err := json.Unmarshal(args, &all); err != nil {
		return nil, fmt.Errorf("the arguments are not valid: %w", err)
	}
	for name, to := range map[string]struct{ shown, size int }{"x": {shownWidth, desktop.Width}, "y": {shownHeight, desktop.Height}} {
		if n, ok := all[name].(float64); ok {
			if n < 0 || n >= float64(to.shown) {
				return nil, fmt.Errorf("%s is %v, and the picture has %dx%d pixels", name, n, shownWidth, shownHeight)
			}
			all[name] = int((n + 0.5) * float64(to.size) / float64(to.shown)) // the middle of the pixel
		}
	}
	return json.Marshal(all)
}

// reduced returns a picture of the shown size. Each of its pixels is the average of those that it covers.
func reduced(captured []byte) ([]byte, error) {
	from, err := png.Decode(bytes.NewReader(captured))
	if err != nil {
		return nil, fmt.Errorf("decode the screenshot: %w", err)
	}
	all, ok := from.(*image.RGBA) // as it is without transparency
	if !ok {
		all = image.NewRGBA(from.Bounds())
		draw.Draw(all, all.Rect, from, all.Rect.Min, draw.Src)
	}
	b := all.Rect
	to := image.NewRGBA(image.Rect(0, 0, shownWidth, shownHeight))
	for y := range shownHeight {
		for x := range shownWidth {
			to.SetRGBA(x, y, average(all, image.Rect(
				b.Min.X+x*b.Dx()/shownWidth, b.Min.Y+y*b.Dy()/shownHeight,
				b.Min.X+((x+1)*b.Dx()+shownWidth-1)/shownWidth, b.Min.Y+((y+1)*b.Dy()+shownHeight-1)/shownHeight)))
		}
	}
	var out bytes.Buffer
	err = png.Encode(&out, to)
	return out.Bytes(), err
}

// average returns the average color of a part of a picture.
func average(from *image.RGBA, part image.Rectangle) color.RGBA {
	var r, g, b, n uint32
	for y := part.Min.Y; y < part.Max.Y; y++ {
		for x := part.Min.X; x < part.Max.X; x++ {
			c := from.RGBAAt(x, y)
			r, g, b, n = r+uint32(c.R), g+uint32(c.G), b+uint32(c.B), n+1
		}
	}
	if n == 0 {
		return color.RGBA{}
	}
	return color.RGBA{R: uint8(r / n), G: uint8(g / n), B: uint8(b / n), A: 0xff} //nolint:gosec // averages of bytes
}
