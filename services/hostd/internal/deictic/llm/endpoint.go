package llm

import (
	"fmt"
	"net/netip"
	"net/url"
	"strings"
)

// Vendor is the vendor of a model.
type Vendor string

// The vendors.
const (
	Anthropic Vendor = "anthropic"
	OpenAI    Vendor = "openai"
	Google    Vendor = "google"
	DeepSeek  Vendor = "deepseek"
)

// vendors has the defaults of each vendor.
var vendors = map[Vendor]struct{ base, model string }{
	Anthropic: {"https://api.anthropic.com/v1", "claude-sonnet-4-5"},
	OpenAI:    {"https://api.openai.com/v1", "gpt-5"},
	Google:    {"https://generativelanguage.googleapis.com/v1beta/openai", "gemini-2.5-pro"},
	DeepSeek:  {"https://api.deepseek.com/v1", "deepseek-chat"},
}

// Endpoint is where a model is and the key to it.
type Endpoint struct {
	Vendor Vendor
	Model  string
	Base   string // URL without a slash at its end
	Key    string
}

// NewEndpoint returns an endpoint. Without a vendor, the model's name says which one it is; other models are
// expected behind Chat Completions. Without a model or a base the vendor's default is used. The base
// is an https URL, or an http URL of the sandbox's own loopback.
func NewEndpoint(vendor, model, base, key string) (Endpoint, error) {
	e := Endpoint{Vendor: Vendor(vendor), Model: model, Key: key}
	if vendor == "" {
		e.Vendor = vendorOf(model)
	}
	d, ok := vendors[e.Vendor]
	if !ok {
		return e, fmt.Errorf("unknown vendor %q of the model", vendor)
	}
	if e.Model == "" {
		e.Model = d.model
	}
	e.Base = d.base
	if base == "" {
		return e, nil
	}
	return e.at(base, false)
}

// Behind returns the endpoint behind a proxy of the client's choice, whose URL may be http: some are in a
// network of the client's own.
func (e Endpoint) Behind(base string) (Endpoint, error) { return e.at(base, true) }

func (e Endpoint) at(base string, plain bool) (Endpoint, error) {
	u, err := url.Parse(base)
	if err != nil || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return e, fmt.Errorf("the URL of the model's endpoint is not valid")
	}
	if u.Scheme != "https" && (u.Scheme != "http" || !plain && !loopback(u.Hostname())) {
		return e, fmt.Errorf("the URL of the model's endpoint must be https")
	}
	e.Base = strings.TrimRight(u.String(), "/")
	// Anthropic's own variable names the host, OpenAI's the version.
	if e.Vendor == Anthropic && !strings.HasSuffix(e.Base, "/v1") {
		e.Base += "/v1"
	}
	return e, nil
}

func loopback(host string) bool {
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && ip.IsLoopback()
}

func vendorOf(model string) Vendor {
	for prefix, v := range map[string]Vendor{"claude": Anthropic, "gemini": Google, "deepseek": DeepSeek} {
		if strings.HasPrefix(model, prefix) {
			return v
		}
	}
	return OpenAI
}

func (e *Endpoint) format() format {
	if e.Vendor == Anthropic {
		return messages{}
	}
	return chat{}
}

// URL returns the address of requests.
func (e *Endpoint) URL() string { return e.Base + e.format().path() }
