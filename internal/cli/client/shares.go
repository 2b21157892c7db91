package client

import "context"

// Share is a link with which an onlooker reads a process, or all processes of a sandbox. Only the response to
// its creation has Token and URL.
type Share struct {
	ID      string `json:"id"`
	Token   string `json:"token,omitempty"`
	URL     string `json:"url,omitempty"`
	Process string `json:"process,omitempty"`
	Sandbox string `json:"sandbox,omitempty"`
	Seq     uint64 `json:"seq,omitempty"` // last event that it shows; 0: all
	Created moment `json:"created"`
	Expires moment `json:"expires"`
}

// NewShare is a request for a link.
type NewShare struct {
	Process string `json:"process,omitempty"`
	Sandbox string `json:"sandbox,omitempty"`
	Seq     uint64 `json:"seq,omitempty"`
	Expires string `json:"expires,omitempty"` // a duration
}

// Shares returns the valid links of the tenant.
func (c *Client) Shares(ctx context.Context) ([]Share, error) {
	var all []Share
	_, err := c.Call(ctx, &Request{Method: "GET", Path: "/v1/shares"}, &all)
	return all, err
}

// CreateShare creates a link. Its URL is complete.
func (c *Client) CreateShare(ctx context.Context, s *NewShare) (Share, error) {
	var made Share
	_, err := c.Call(ctx, &Request{Method: "POST", Path: "/v1/shares", JSON: s}, &made)
	if err == nil {
		made.URL = c.Base() + made.URL
	}
	return made, err
}
