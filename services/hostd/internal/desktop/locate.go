package desktop

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"math"
	"os/exec"
	"strings"
	"time"

	"github.com/millrace/millrace/events/kind"
)

const (
	locatorVar = "OMNIPARSER_URL"
	locatorURL = "http://127.0.0.1:8765"
	locating   = 2 * time.Minute // a model without a graphics card takes most of one
)

// Element is something on the screen that OmniParser recognized.
type Element struct {
	Kind        string `json:"kind"` // text or icon
	Content     string `json:"content"`
	Interactive bool   `json:"interactive"`
	X           int    `json:"x"` // of its center, in pixels
	Y           int    `json:"y"`
	Box         [4]int `json:"box"` // left, top, right and bottom, in pixels
}

// parsed is an answer of OmniParser's server. A box has fractions of the screen.
type parsed struct {
	List []struct {
		Type          string
		Content       *string
		Interactivity bool
		BBox          [4]float64
	} `json:"parsed_content_list"`
}

// locate returns the elements on the screen whose content contains the query; all without one.
func (d *Desktop) locate(ctx context.Context, r *request) (Result, error) {
	png, err := d.screenshot(ctx, r)
	if err != nil {
		return png, err
	}
	raw, err := d.ask(ctx, png.PNG)
	if err != nil {
		return Result{}, err
	}
	var p parsed
	if json.Unmarshal(raw, &p) != nil || p.List == nil {
		return Result{}, locatorError("locator_failed", "its answer has no parsed_content_list")
	}
	found := []Element{}
	for _, item := range p.List {
		e := Element{Kind: item.Type, Interactive: item.Interactivity}
		if item.Content != nil {
			e.Content = *item.Content
		}
		if !strings.Contains(strings.ToLower(e.Content), strings.ToLower(r.Query)) {
			continue
		}
		for i, size := range [4]float64{Width, Height, Width, Height} {
			e.Box[i] = int(math.Round(min(max(item.BBox[i], 0), 1) * size))
		}
		e.X, e.Y = (e.Box[0]+e.Box[2])/2, (e.Box[1]+e.Box[3])/2
		found = append(found, e)
	}
	return Result{Elements: found}, nil
}

// ask sends a screenshot to OmniParser and returns its answer. curl does it, because a client of HTTP
// would double the size of the runtime's program.
func (d *Desktop) ask(ctx context.Context, png []byte) ([]byte, error) {
	base := ""
	if d.cfg.Setting != nil {
		base = d.cfg.Setting(locatorVar)
	}
	base = strings.TrimSuffix(cmp.Or(base, locatorURL), "/")
	if !strings.HasPrefix(base, "http://") && !strings.HasPrefix(base, "https://") {
		return nil, locatorError("locator_unavailable", locatorVar+" must be an http or https URL")
	}
	body, err := json.Marshal(map[string][]byte{"base64_image": png}) // bytes are base64 in JSON
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, locating)
	defer cancel()
	cmd, said := d.command(ctx, "curl", "--silent", "--show-error", "--fail", "--noproxy", "127.0.0.1,localhost",
		"--proto", "=http,https", "--header", "Content-Type: application/json", "--header", "Expect:", "--data-binary", "@-", "--url", base+"/parse/")
	out := capped{limit: maxPNG}
	cmd.Stdin, cmd.Stdout = bytes.NewReader(body), &out
	const httpError = 22 // exit code for a status of 400 or more
	var exit *exec.ExitError
	switch err := cmd.Run(); {
	case err == nil:
		return out.Bytes(), nil
	case errors.Is(err, exec.ErrNotFound):
		return nil, kind.Coded(kind.Unavailable, "use desktop", "", "program_missing", "curl is not installed in this sandbox")
	case errors.As(err, &exit) && exit.ExitCode() == httpError:
		return nil, locatorError("locator_failed", said.String())
	default:
		return nil, locatorError("locator_unavailable", "no server answers at "+base+": "+said.explain("curl", err).Error())
	}
}

func locatorError(code, why string) error {
	return kind.Coded(kind.Unavailable, "locate element", "", code, "OmniParser: "+why)
}
