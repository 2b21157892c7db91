package app

import (
	"os"

	"github.com/spf13/pflag"

	"github.com/millrace/millrace/events/tracing"
)

// traces holds the settings of the export of spans.
type traces struct{ endpoint string }

func (t *traces) flags(f *pflag.FlagSet) {
	f.StringVar(&t.endpoint, "otlp-endpoint", "", "URL of the OpenTelemetry collector that receives a span for each command, such as http://127.0.0.1:4318; OTEL_* variables apply (default OTEL_EXPORTER_OTLP_ENDPOINT, else none)")
}

// config returns the settings; nil: no spans are exported.
func (t *traces) config(getenv func(string) string) (*tracing.Settings, error) {
	return tracing.FromEnv(getenv, os.ReadFile, t.endpoint)
}

// samplerOf returns the sampler of settings, which may be nil.
func samplerOf(s *tracing.Settings) tracing.Sampler {
	if s == nil {
		return tracing.Sampler{}
	}
	return s.Sampler
}
