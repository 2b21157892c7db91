package client

import (
	"context"
	"net/url"
)

// Template is a template as the gateway shows it.
type Template struct {
	Name     string            `json:"name"`
	Tag      string            `json:"tag"`
	ID       string            `json:"id"`
	Arch     string            `json:"arch"`
	Size     int64             `json:"size"`
	Files    int64             `json:"files"`
	Tagged   moment            `json:"tagged_at"`
	Shared   bool              `json:"shared"`
	Sudo     bool              `json:"sudo"`
	User     string            `json:"user"`
	Dir      string            `json:"workdir"`
	Env      map[string]string `json:"env"`
	Start    []string          `json:"start"`
	Services []Service         `json:"services,omitempty"`
	Hosts    []string          `json:"hosts"`
}

// Service is a server that clients may request by name.
type Service struct {
	Name     string `json:"name"`
	Protocol string `json:"protocol"`
	Port     int    `json:"port"`
	Start    string `json:"start,omitempty"`
}

// TemplatePath returns the path of a template.
func TemplatePath(name string) string { return "/v1/store/templates/" + url.PathEscape(name) }

// Templates returns all templates.
func (c *Client) Templates(ctx context.Context) ([]Template, error) {
	var out struct {
		Templates []Template `json:"templates"`
	}
	_, err := c.Call(ctx, &Request{Method: "GET", Path: "/v1/store/templates"}, &out)
	return out.Templates, err
}
