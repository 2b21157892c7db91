package command

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/millrace/millrace/internal/cli/client"
	"github.com/millrace/millrace/internal/cli/output"
)

// Config holds what the commands need from the program around them. In, Out, Err and
// LookupEnv are required.
type Config struct {
	In        io.Reader
	Out       io.Writer
	Err       io.Writer
	LookupEnv func(string) (string, bool)
	Version   string
	// Probe tests the drivers of this machine, for doctor.
	Probe func(ctx context.Context) []DriverReport
	// Examine examines the installation of NATS servers, for doctor --cluster.
	Examine func(ctx context.Context, url, token string) ([]ClusterFinding, error)
	// Confine returns why this machine's kernel cannot confine processes, for doctor.
	Confine func() error
	// MCPGateway returns the path of the program that template build installs as
	// mcp-gateway; it reports its progress by tell.
	MCPGateway func(ctx context.Context, tell func(msg string, args ...any)) (string, error)
}

// Getenv returns the value of an environment variable, or "" if it is not set.
func (c Config) Getenv(name string) string {
	value, _ := c.LookupEnv(name)
	return value
}

// DriverReport reports whether a driver works on this machine.
type DriverReport struct {
	Name   string `json:"name"`
	OK     bool   `json:"ok"`
	Detail string `json:"detail"` // capabilities, or why the driver does not work
}

// ClusterFinding is the result of one check of an installation.
type ClusterFinding struct {
	OK      bool   `json:"ok"`
	Subject string `json:"subject"`
	Detail  string `json:"detail"`
	Do      string `json:"do,omitempty"` // how to repair it
}

// Env is what all commands of one run of the program share: its configuration, and the
// flags that every command has.
type Env struct {
	Config
	url, key, data string
	output         string
}

// Client returns a client for the gateways and the key from the flags, else the
// environment, else the local data directory.
func (a *Env) Client() (*client.Client, error) {
	urls, key := a.url, a.key
	if urls == "" {
		urls = a.Getenv("MILLRACE_URL")
	}
	if key == "" {
		key = a.Getenv("MILLRACE_API_KEY")
	}
	dir, err := a.DataDir()
	if err != nil && (urls == "" || key == "") {
		return nil, err
	}
	if urls == "" {
		if urls, err = ReadTrimmed(filepath.Join(dir, AddressFile)); err != nil {
			return nil, fmt.Errorf("no gateway configured: start `millrace up`, or set --url or MILLRACE_URL (%w)", err)
		}
	}
	if key == "" {
		key, _ = ReadTrimmed(filepath.Join(dir, KeyFile))
	}
	c, err := client.New(urls, key)
	if err == nil {
		c.Warn = a.Notef
	}
	return c, err
}

// DataDir returns the data directory of the local `up`: that of the flag, else the default.
func (a *Env) DataDir() (string, error) {
	if a.data != "" {
		return a.data, nil
	}
	return DataDir(a.Getenv)
}

// ReadTrimmed returns the content of a file without surrounding white space.
func ReadTrimmed(path string) (string, error) {
	b, err := os.ReadFile(path)
	return strings.TrimSpace(string(b)), err
}

// JSON reports whether --output asks for JSON.
func (a *Env) JSON() (bool, error) {
	switch a.output {
	case "json":
		return true, nil
	case "", "table":
		return false, nil
	}
	return false, fmt.Errorf("--output %q must be table or json", a.output)
}

// Open returns the client and whether --output asks for JSON.
func (a *Env) Open() (c *client.Client, asJSON bool, err error) {
	if asJSON, err = a.JSON(); err == nil {
		c, err = a.Client()
	}
	return c, asJSON, err
}

// Notef prints a message to standard error. Its text is sanitized: it may quote untrusted
// sources.
func (a *Env) Notef(format string, args ...any) {
	fmt.Fprintf(a.Err, "millrace: %s\n", output.Plain(fmt.Sprintf(format, args...)))
}

// Files in the data directory by which commands find the local `up`.
const (
	KeyFile     = "key"     // first API key; mode 0600
	AddressFile = "address" // URL of the gateway
)

// DataDir returns the default data directory: MILLRACE_DATA, else millrace in the
// XDG state directory.
func DataDir(getenv func(string) string) (string, error) {
	if d := getenv("MILLRACE_DATA"); d != "" {
		return d, nil
	}
	if d := getenv("XDG_STATE_HOME"); filepath.IsAbs(d) { // the specification ignores relative paths
		return filepath.Join(d, "millrace"), nil
	}
	home := getenv("HOME")
	if home == "" {
		var err error
		if home, err = os.UserHomeDir(); err != nil {
			return "", fmt.Errorf("no data directory: set --data, MILLRACE_DATA or HOME: %w", err)
		}
	}
	return filepath.Join(home, ".local", "state", "millrace"), nil
}
