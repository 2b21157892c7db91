package deictic

import (
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"os"

	"github.com/millrace/millrace/services/hostd/internal/deictic/llm"
)

// Names in env.json.
const (
	keyTask      = "TASK"
	keyVendor    = "LLM_VENDOR"
	keyModel     = "LLM_MODEL"
	keyBase      = "LLM_BASE_URL"
	keyApp       = "APP_JSON"
	keySession   = "SESSION_ID"
	keyOpenAI    = "OPENAI_BASE_URL"
	keyAnthropic = "ANTHROPIC_BASE_URL"
	keyRoots     = "SSL_CERT_FILE"
)

// keyNames are the names of the model's key, in their order of precedence.
var keyNames = [...]string{"LLM_KEY", "LLM_API_KEY"}

// maxConfig limits env.json, which has the values of all secret bundles.
const maxConfig = 16 << 20

// config is the file that the platform replaces when a secret changes.
type config string

// read returns the values. A value that is not a string counts as its JSON text.
func (c config) read() (map[string]string, error) {
	f, err := os.Open(string(c))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxConfig))
	if err != nil {
		return nil, err
	}
	var raw map[string]json.RawMessage
	if json.Unmarshal(b, &raw) != nil { // whose error could quote a value
		return nil, fmt.Errorf("%s is not a JSON object", string(c))
	}
	values := make(map[string]string, len(raw))
	for name, v := range raw {
		var s string
		if json.Unmarshal(v, &s) != nil {
			s = string(v)
		}
		values[name] = s
	}
	return values, nil
}

// roots returns the system's certificates and those of the file that the configuration names by
// SSL_CERT_FILE, as commands have it; nil: the system's alone.
func (c config) roots() *x509.CertPool {
	v, err := c.read()
	if err != nil || v[keyRoots] == "" {
		return nil
	}
	pem, err := os.ReadFile(v[keyRoots])
	if err != nil {
		return nil
	}
	pool, err := x509.SystemCertPool()
	if err != nil {
		pool = x509.NewCertPool()
	}
	pool.AppendCertsFromPEM(pem)
	return pool
}

// endpoint returns the current endpoint of the model.
func (c config) endpoint() (llm.Endpoint, error) {
	v, err := c.read()
	if err != nil {
		return llm.Endpoint{}, err
	}
	return endpointOf(v)
}

func endpointOf(v map[string]string) (llm.Endpoint, error) {
	e, err := llm.NewEndpoint(v[keyVendor], v[keyModel], v[keyBase], keyOf(v))
	if err != nil || v[keyBase] != "" {
		return e, err
	}
	base := v[keyOpenAI]
	if e.Vendor == llm.Anthropic {
		base = v[keyAnthropic]
	}
	if base == "" || e.Vendor != llm.Anthropic && e.Vendor != llm.OpenAI {
		return e, nil
	}
	return e.Behind(base)
}

func keyOf(v map[string]string) string {
	for _, name := range keyNames {
		if v[name] != "" {
			return v[name]
		}
	}
	return ""
}
