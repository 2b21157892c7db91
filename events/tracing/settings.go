package tracing

import (
	"cmp"
	"crypto/x509"
	"maps"
	"net/url"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/millrace/millrace/events/kind"
)

// Settings say where spans are exported to, and which ones.
type Settings struct {
	URL      string            // receiver of spans, with its path
	Headers  map[string]string // of each request; they may be secrets
	Timeout  time.Duration     // of a request
	Gzip     bool              // requests are compressed
	Roots    *x509.CertPool    // the receiver's certificate authorities; nil: the machine's
	Resource map[string]string // attributes of all spans
	Sampler  Sampler
}

const (
	defaultService = "millrace"
	defaultTimeout = 10 * time.Second
	tracesPath     = "v1/traces" // below the endpoint of all signals
)

// FromEnv returns the settings in OpenTelemetry's environment variables, or nil if they name no endpoint.
// endpoint, if it is not empty, is used instead of OTEL_EXPORTER_OTLP_ENDPOINT. It returns Invalid for
// settings that cannot be followed.
func FromEnv(getenv func(string) string, readFile func(string) ([]byte, error), endpoint string) (*Settings, error) {
	e := env{getenv}
	s := &Settings{}
	if err := s.setURL(e, endpoint); err != nil || s.URL == "" {
		return nil, err
	}
	if p := e.signal("PROTOCOL"); p != "" && p != "http/protobuf" {
		return nil, invalid("OTEL_EXPORTER_OTLP_PROTOCOL", p, "http/protobuf")
	}
	switch c := e.signal("COMPRESSION"); c {
	case "", "none":
	case "gzip":
		s.Gzip = true
	default:
		return nil, invalid("OTEL_EXPORTER_OTLP_COMPRESSION", c, "none or gzip")
	}
	if file := e.signal("CERTIFICATE"); file != "" {
		pem, err := readFile(file)
		if err != nil {
			return nil, &kind.Error{Op: "parse settings", Kind: kind.Invalid, Msg: "OTEL_EXPORTER_OTLP_CERTIFICATE: " + err.Error(), Err: err}
		}
		if s.Roots = x509.NewCertPool(); !s.Roots.AppendCertsFromPEM(pem) {
			return nil, invalid("OTEL_EXPORTER_OTLP_CERTIFICATE", file, "a PEM file of certificates")
		}
	}
	s.Timeout = defaultTimeout
	if t := e.signal("TIMEOUT"); t != "" {
		ms, err := strconv.ParseUint(t, 10, 31)
		if err != nil || ms == 0 {
			return nil, invalid("OTEL_EXPORTER_OTLP_TIMEOUT", t, "a positive number of milliseconds")
		}
		s.Timeout = time.Duration(ms) * time.Millisecond
	}
	var err error
	if s.Headers, err = pairs("OTEL_EXPORTER_OTLP_HEADERS", e.signal("HEADERS")); err != nil {
		return nil, err
	}
	for name, value := range s.Headers {
		if strings.ContainsFunc(name, notToken) || strings.ContainsFunc(value, unicode.IsControl) {
			return nil, kind.New(kind.Invalid, "parse settings", "", "OTEL_EXPORTER_OTLP_HEADERS: a header has an invalid name or value")
		}
	}
	given, err := pairs("OTEL_RESOURCE_ATTRIBUTES", getenv("OTEL_RESOURCE_ATTRIBUTES"))
	if err != nil {
		return nil, err
	}
	s.Resource = map[string]string{"service.name": defaultService}
	maps.Copy(s.Resource, given)
	if name := getenv("OTEL_SERVICE_NAME"); name != "" {
		s.Resource["service.name"] = name
	}
	s.Sampler, err = ParseSampler(getenv("OTEL_TRACES_SAMPLER"), getenv("OTEL_TRACES_SAMPLER_ARG"))
	return s, err
}

// setURL sets the URL, or leaves it empty if spans are not exported.
func (s *Settings) setURL(e env, endpoint string) error {
	if strings.EqualFold(e.get("OTEL_SDK_DISABLED"), "true") || e.get("OTEL_TRACES_EXPORTER") == "none" {
		return nil
	}
	whole := ""
	if endpoint == "" {
		whole = e.get("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
	}
	raw := cmp.Or(endpoint, whole, e.get("OTEL_EXPORTER_OTLP_ENDPOINT"))
	if raw == "" {
		return nil
	}
	u, err := url.Parse(raw)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" || u.User != nil || u.Fragment != "" {
		return kind.New(kind.Invalid, "parse settings", "", "the OTLP endpoint must be a URL that begins with http:// or https://, without a user or a fragment")
	}
	if x := e.get("OTEL_TRACES_EXPORTER"); x != "" && x != "otlp" {
		return invalid("OTEL_TRACES_EXPORTER", x, "otlp or none")
	}
	if whole == "" {
		u = u.JoinPath(tracesPath)
	}
	s.URL = u.String()
	return nil
}

// env reads OpenTelemetry's environment variables.
type env struct{ get func(string) string }

// signal returns a setting of the exporter for traces, or else for all signals.
func (e env) signal(name string) string {
	return cmp.Or(e.get("OTEL_EXPORTER_OTLP_TRACES_"+name), e.get("OTEL_EXPORTER_OTLP_"+name))
}

// pairs parses NAME=VALUE, separated by commas, with percent-encoded values. Its error does not contain
// them: they may be secrets.
func pairs(variable, list string) (map[string]string, error) {
	out := make(map[string]string)
	for part := range strings.SplitSeq(list, ",") {
		if strings.TrimSpace(part) == "" {
			continue
		}
		name, raw, ok := strings.Cut(part, "=")
		name = strings.TrimSpace(name)
		value, err := url.PathUnescape(strings.TrimSpace(raw))
		if !ok || name == "" || err != nil {
			return nil, kind.Newf(kind.Invalid, "parse settings", "", "%s must have the form NAME=VALUE,NAME=VALUE with percent-encoded values", variable)
		}
		out[name] = value
	}
	return out, nil
}

// notToken reports whether a character cannot be in the name of a header.
func notToken(r rune) bool {
	return r <= ' ' || r > '~' || strings.ContainsRune(`"(),/:;<=>?@[\]{}`, r)
}

func invalid(variable, value, want string) error {
	return kind.Newf(kind.Invalid, "parse settings", "", "%s: %.64q must be %s", variable, value, want)
}
