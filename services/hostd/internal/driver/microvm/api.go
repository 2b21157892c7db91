//go:build linux

package microvm

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"time"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/services/hostd/internal/driver/internal/live"
)

// api is a client of Firecracker's API, over the unix socket in a sandbox's directory. It
// implements live.Freezer for its machine.
type api struct{ client *http.Client }

const apiTime = time.Minute // per request: a snapshot writes all of the memory

func newAPI(dir string) api {
	return api{&http.Client{Timeout: apiTime, Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return live.DialAt(ctx, dir, apiFile)
		},
	}}}
}

// do makes a call and decodes the response into out, unless it is nil.
func (a api) do(ctx context.Context, c call, out any) error {
	body, err := c.jsonOf()
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, c.method, "http://firecracker"+c.path, bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := a.client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	const most = 64 << 10
	b, err := io.ReadAll(io.LimitReader(resp.Body, most))
	if err != nil {
		return err
	}
	if resp.StatusCode/100 != 2 {
		return refused(&c, resp.Status, b)
	}
	if out == nil {
		return nil
	}
	return json.Unmarshal(b, out)
}

// refused returns the error of a call that Firecracker refused. It is Invalid for the machine's
// configuration, which comes from the request. Other calls fail because the host lacks something.
func refused(c *call, status string, body []byte) error {
	k := kind.Unavailable
	if c.path == "/machine-config" {
		k = kind.Invalid
	}
	var fault struct {
		Message string `json:"fault_message"`
	}
	if json.Unmarshal(body, &fault) != nil || fault.Message == "" {
		fault.Message = string(body)
	}
	return kind.Newf(k, c.method+" "+c.path, "", "firecracker: %s: %.500s", status, fault.Message)
}

// Freeze stops the machine's CPUs.
func (a api) Freeze(ctx context.Context) error {
	return a.do(ctx, call{"PATCH", "/vm", object{"state": "Paused"}}, nil)
}

// Thaw resumes them.
func (a api) Thaw(ctx context.Context) error {
	return a.do(ctx, call{"PATCH", "/vm", object{"state": "Resumed"}}, nil)
}

// Frozen reports whether they are stopped.
func (a api) Frozen() (bool, error) {
	var info struct {
		State string `json:"state"`
	}
	err := a.do(context.Background(), call{"GET", "/", nil}, &info)
	return info.State == "Paused", err
}
