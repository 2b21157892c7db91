package desktop

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/millrace/millrace/events/kind"
)

// Limits of calls.
const (
	maxText   = 4096             // characters of a text to type
	maxClicks = 100              // of a wheel; a button has fewer
	maxRepeat = 3                // clicks of a button
	maxPNG    = 16<<20 - 64<<10  // bytes, somewhat less than a frame
	timeout   = 15 * time.Second // of a program, unless it types or locates
	typing    = 5 * time.Minute
	keyDelay  = "4"  // milliseconds between keys, which slow programs need
	mapDelay  = "60" // as above, if xdotool maps a key to each character for as long as it is pressed
)

// Result is the result of a call.
type Result struct {
	PNG      []byte    // of a screenshot
	Elements []Element // of locate_element, where it is not nil
}

// request has the arguments of all tools.
type request struct {
	X, Y      *int
	Button    string
	Count     *int
	Text      *string
	Key       string
	Direction string
	Amount    *int
	Query     string
}

type tool func(*Desktop, context.Context, *request) (Result, error)

// tools returns the tools by name.
func tools() map[string]tool {
	return map[string]tool{
		"screenshot":     (*Desktop).screenshot,
		"locate_element": (*Desktop).locate,
		"mouse_move":     (*Desktop).move,
		"mouse_click":    (*Desktop).click,
		"keyboard_type":  (*Desktop).enter,
		"press_key":      (*Desktop).press,
		"scroll":         (*Desktop).scroll,
	}
}

// Known reports whether a tool exists.
func Known(name string) bool { return tools()[name] != nil }

// Do calls a tool. arguments is a JSON object, of which other members are ignored. It starts the
// desktop if that was not done before.
func (d *Desktop) Do(ctx context.Context, name string, arguments []byte) (Result, error) {
	do := tools()[name]
	if do == nil {
		return Result{}, invalid("the tool %q does not exist", name)
	}
	var r request
	if err := json.Unmarshal(arguments, &r); err != nil {
		var field *json.UnmarshalTypeError
		if errors.As(err, &field) {
			return Result{}, invalid("%s must be of the type %s", strings.ToLower(field.Field), field.Type)
		}
		return Result{}, invalid("the arguments are not a JSON object")
	}
	d.Start()
	return do(d, ctx, &r)
}

func invalid(format string, args ...any) error {
	return kind.Coded(kind.Invalid, "use desktop", "", "invalid_argument", fmt.Sprintf(format, args...))
}

// screenshot captures the screen. scrot encodes the PNG; nothing else touches it.
func (d *Desktop) screenshot(ctx context.Context, _ *request) (Result, error) {
	png, err := d.run(ctx, timeout, nil, "scrot", "-o", "-")
	return Result{PNG: png}, err
}

// move moves the pointer.
func (d *Desktop) move(ctx context.Context, r *request) (Result, error) {
	if r.X == nil || r.Y == nil {
		return Result{}, invalid("x and y are required")
	}
	return d.point(ctx, r)
}

var buttons = map[string]string{"": "1", "left": "1", "middle": "2", "right": "3", "back": "8", "forward": "9"}

// click clicks with a button.
func (d *Desktop) click(ctx context.Context, r *request) (Result, error) {
	button, ok := buttons[r.Button]
	if !ok {
		return Result{}, invalid("button must be left, middle, right, back or forward")
	}
	n, err := within("count", r.Count, 1, maxRepeat)
	if err != nil {
		return Result{}, err
	}
	return d.point(ctx, r, "click", "--repeat", n, "--delay", "40", button)
}

var wheel = map[string]string{"up": "4", "down": "5", "left": "6", "right": "7"}

// scroll turns the wheel.
func (d *Desktop) scroll(ctx context.Context, r *request) (Result, error) {
	button, ok := wheel[r.Direction]
	if !ok {
		return Result{}, invalid("direction must be up, down, left or right")
	}
	const usual = 3
	n, err := within("amount", r.Amount, usual, maxClicks)
	if err != nil {
		return Result{}, err
	}
	return d.point(ctx, r, "click", "--repeat", n, "--delay", "10", button)
}

// within returns the text of a number from 1 to limit.
func within(name string, n *int, usual, limit int) (string, error) {
	if n == nil {
		n = &usual
	}
	if *n < 1 || *n > limit {
		return "", invalid("%s must be from 1 to %d", name, limit)
	}
	return strconv.Itoa(*n), nil
}

// point moves the pointer, if the request has a position, and executes further commands of xdotool.
func (d *Desktop) point(ctx context.Context, r *request, then ...string) (Result, error) {
	args := then
	switch {
	case (r.X == nil) != (r.Y == nil):
		return Result{}, invalid("x and y are required together")
	case r.X != nil && (*r.X < 0 || *r.X >= Width || *r.Y < 0 || *r.Y >= Height):
		return Result{}, invalid("the position %d,%d is not on the screen: it has %dx%d pixels", *r.X, *r.Y, Width, Height)
	case r.X != nil:
		args = append([]string{"mousemove", strconv.Itoa(*r.X), strconv.Itoa(*r.Y)}, then...)
	}
	_, err := d.run(ctx, timeout, nil, "xdotool", args...)
	return Result{}, err
}

// enter types a text.
func (d *Desktop) enter(ctx context.Context, r *request) (Result, error) {
	switch {
	case r.Text == nil:
		return Result{}, invalid("text is required")
	case len([]rune(*r.Text)) > maxText:
		return Result{}, invalid("text has more than %d characters", maxText)
	case strings.ContainsRune(*r.Text, 0):
		return Result{}, invalid("text has a NUL byte")
	case *r.Text == "":
		return Result{}, nil
	}
	delay := keyDelay
	if strings.ContainsFunc(*r.Text, func(c rune) bool { return c > unicode.MaxASCII }) {
		delay = mapDelay
	}
	_, err := d.run(ctx, typing, strings.NewReader(*r.Text), "xdotool", "type", "--delay", delay, "--file", "-")
	return Result{}, err
}

var keys = regexp.MustCompile(`^[A-Za-z0-9_]{1,40}(\+[A-Za-z0-9_]{1,40}){0,4}$`)

// keysyms maps names of keys in browsers to those of X, where they differ.
var keysyms = map[string]string{
	"enter": "Return", "esc": "Escape", "escape": "Escape", "backspace": "BackSpace", "tab": "Tab", "delete": "Delete", "space": "space",
	"arrowup": "Up", "arrowdown": "Down", "arrowleft": "Left", "arrowright": "Right", "pageup": "Prior", "pagedown": "Next", "home": "Home", "end": "End",
	"control": "ctrl", "cmd": "super", "command": "super",
}

// press presses a key, or several at once.
func (d *Desktop) press(ctx context.Context, r *request) (Result, error) {
	if !keys.MatchString(r.Key) {
		return Result{}, invalid("key must be the name of a key, such as Return, a or ctrl+shift+t")
	}
	parts := strings.Split(r.Key, "+")
	for i, k := range parts {
		if name, ok := keysyms[strings.ToLower(k)]; ok {
			parts[i] = name
		}
	}
	_, err := d.run(ctx, timeout, nil, "xdotool", "key", "--", strings.Join(parts, "+"))
	return Result{}, err
}

// run runs a program on the display and returns what it prints.
func (d *Desktop) run(ctx context.Context, limit time.Duration, stdin io.Reader, name string, args ...string) ([]byte, error) {
	if err := d.ready(ctx); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	cmd, said := d.command(ctx, name, args...)
	out := capped{limit: maxPNG}
	cmd.Stdin, cmd.Stdout = stdin, &out
	cmd.Env = slices.Concat(d.environ, []string{"LC_ALL=C.UTF-8"}) // xdotool decodes its input by the locale
	err := cmd.Run()
	// xdotool ignores keys that it does not have, and is successful.
	if err == nil && strings.Contains(said.String(), "No such key name") {
		return nil, invalid("the keyboard has no such key: %s", said)
	}
	switch {
	case err == nil:
		return out.Bytes(), nil
	case errors.Is(err, exec.ErrNotFound):
		return nil, kind.Coded(kind.Unavailable, "use desktop", "", "program_missing", name+" is not installed in this sandbox: create it from the template cua")
	case ctx.Err() != nil:
		err = ctx.Err()
	case !d.answers():
		return nil, d.unavailable(errEnded)
	}
	return nil, kind.Coded(kind.Internal, "use desktop", "", "tool_failed", said.explain(name, err).Error())
}

// capped is a buffer that refuses more than limit bytes.
type capped struct {
	bytes.Buffer
	limit int
}

// Write implements [io.Writer].
func (c *capped) Write(b []byte) (int, error) {
	if c.Len()+len(b) > c.limit {
		return 0, fmt.Errorf("more than %d bytes", c.limit)
	}
	return c.Buffer.Write(b)
}
