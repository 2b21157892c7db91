package client

import (
	"context"
	"net/http"
	"net/url"
)

// snapshotWire is a snapshot as the gateway sends it, and Snapshot as the CLI prints it.
type (
	snapshotWire struct {
		ID    string   `json:"snapshotID"`
		Names []string `json:"names"`
	}
	Snapshot struct {
		ID    string   `json:"snapshot"`
		Names []string `json:"names"`
	}
)

// CreateSnapshot creates a snapshot of a sandbox.
func (c *Client) CreateSnapshot(ctx context.Context, sbx, name string) (Snapshot, error) {
	var out snapshotWire
	_, err := c.Call(ctx, &Request{Method: "POST", Path: SandboxPath(sbx) + "/snapshots", JSON: map[string]string{"name": name}}, &out)
	return Snapshot(out), err
}

// Snapshots returns all snapshots; it reads the list page by page.
func (c *Client) Snapshots(ctx context.Context) ([]Snapshot, error) {
	all := []Snapshot{}
	q := url.Values{"limit": {"100"}}
	for more := true; more; {
		var page []snapshotWire
		h, err := c.Call(ctx, &Request{Method: http.MethodGet, Path: "/snapshots", Query: q}, &page)
		if err != nil {
			return nil, err
		}
		for _, s := range page {
			all = append(all, Snapshot(s))
		}
		q.Set("nextToken", h.Get("X-Next-Token"))
		more = q.Get("nextToken") != ""
	}
	return all, nil
}
