package tracing_test

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/tracing"
)

func fromEnv(endpoint string, pairs ...string) (*tracing.Settings, error) {
	env := map[string]string{}
	for i := 0; i < len(pairs); i += 2 {
		env[pairs[i]] = pairs[i+1]
	}
	return tracing.FromEnv(func(name string) string { return env[name] }, func(string) ([]byte, error) { return []byte("no certificate"), nil }, endpoint)
}

func TestTracesAreOffWithoutAnEndpoint(t *testing.T) {
	for _, env := range [][]string{
		nil,
		{"OTEL_SERVICE_NAME", "x", "OTEL_TRACES_SAMPLER", "unknown"},
		{"OTEL_EXPORTER_OTLP_ENDPOINT", "http://c:4318", "OTEL_SDK_DISABLED", "true"},
		{"OTEL_EXPORTER_OTLP_ENDPOINT", "http://c:4318", "OTEL_TRACES_EXPORTER", "none"},
	} {
		if s, err := fromEnv("", env...); s != nil || err != nil {
			t.Errorf("%v: got %+v, %v; want none", env, s, err)
		}
	}
}

func TestEndpoints(t *testing.T) {
	const all, traces = "OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"
	tests := []struct {
		flag string
		env  []string
		want string
	}{
		{"", []string{all, "http://c:4318"}, "http://c:4318/v1/traces"},
		{"", []string{all, "https://c/otlp/"}, "https://c/otlp/v1/traces"},
		{"", []string{all, "http://c:4318", traces, "http://d/x"}, "http://d/x"},
		{"http://f", []string{all, "http://c:4318", traces, "http://d/x"}, "http://f/v1/traces"},
	}
	for _, tt := range tests {
		if s, err := fromEnv(tt.flag, tt.env...); err != nil || s == nil || s.URL != tt.want {
			t.Errorf("%q %v: got %+v, %v; want %s", tt.flag, tt.env, s, err, tt.want)
		}
	}
}

func TestSettingsFollowTheEnvironment(t *testing.T) {
	got, err := fromEnv("http://c:4318",
		"OTEL_EXPORTER_OTLP_HEADERS", "a=1", "OTEL_EXPORTER_OTLP_TRACES_HEADERS", "Authorization=Bearer%20x, api-key=k%3D",
		"OTEL_EXPORTER_OTLP_TIMEOUT", "1500", "OTEL_EXPORTER_OTLP_COMPRESSION", "gzip",
		"OTEL_RESOURCE_ATTRIBUTES", "deployment.environment.name=a%2Cb,service.name=x", "OTEL_SERVICE_NAME", "mine")
	want := &tracing.Settings{
		URL: "http://c:4318/v1/traces", Headers: map[string]string{"Authorization": "Bearer x", "api-key": "k="},
		Timeout: 1500 * time.Millisecond, Gzip: true,
		Resource: map[string]string{"deployment.environment.name": "a,b", "service.name": "mine"},
	}
	want.Sampler, _ = tracing.ParseSampler("", "")
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, %v; want %+v", got, err, want)
	}
}

func TestInvalidSettings(t *testing.T) {
	const secret = "hunter2"
	for _, env := range [][]string{
		{"OTEL_EXPORTER_OTLP_ENDPOINT", "c:4317"},
		{"OTEL_EXPORTER_OTLP_ENDPOINT", "http://u:" + secret + "@c"},
		{"OTEL_EXPORTER_OTLP_ENDPOINT", "http://c", "OTEL_EXPORTER_OTLP_PROTOCOL", "grpc"},
		{"OTEL_EXPORTER_OTLP_ENDPOINT", "http://c", "OTEL_EXPORTER_OTLP_COMPRESSION", "zstd"},
		{"OTEL_EXPORTER_OTLP_ENDPOINT", "http://c", "OTEL_EXPORTER_OTLP_TIMEOUT", "0"},
		{"OTEL_EXPORTER_OTLP_ENDPOINT", "http://c", "OTEL_EXPORTER_OTLP_HEADERS", secret},
		{"OTEL_EXPORTER_OTLP_ENDPOINT", "http://c", "OTEL_EXPORTER_OTLP_HEADERS", "a b=" + secret},
		{"OTEL_EXPORTER_OTLP_ENDPOINT", "http://c", "OTEL_EXPORTER_OTLP_HEADERS", "a=" + secret + "%0d%0a"},
		{"OTEL_EXPORTER_OTLP_ENDPOINT", "http://c", "OTEL_RESOURCE_ATTRIBUTES", "a=%"},
		{"OTEL_EXPORTER_OTLP_ENDPOINT", "http://c", "OTEL_TRACES_SAMPLER", "x"},
		{"OTEL_EXPORTER_OTLP_ENDPOINT", "https://c", "OTEL_EXPORTER_OTLP_CERTIFICATE", "/ca.pem"},
		{"OTEL_EXPORTER_OTLP_ENDPOINT", "http://c", "OTEL_TRACES_EXPORTER", "console"},
	} {
		if s, err := fromEnv("", env...); !kind.Is(err, kind.Invalid) || strings.Contains(err.Error(), secret) {
			t.Errorf("%v: got %+v, %v; want Invalid without the secret", env, s, err)
		}
	}
}
