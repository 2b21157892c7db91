package app

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spf13/pflag"

	"github.com/millrace/millrace/events"
	"github.com/millrace/millrace/events/seal"
	"github.com/millrace/millrace/internal/masterkey"
	"github.com/millrace/millrace/services/reaper"
)

// masterKey holds the settings of the master key.
type masterKey struct {
	key     masterkey.Key
	used    bool        // the service seals or opens values
	source  seal.Source // set by prepare
	created atomic.Bool // this run created the file
}

func (m *masterKey) flags(f *pflag.FlagSet) {
	m.used = true
	f.StringVar(&m.key.File, "master-key", "", "file of the master key, which seals secrets and environments in the store; required if NATS is on another machine (default millrace/master.key in the user's configuration directory, created at the first start)")
	f.StringVar(&m.key.Command, "master-key-command", "", "shell command that prints the master key, instead of --master-key")
}

// prepare checks the settings of a service that connects to NATS at urls; "" is in this process.
func (m *masterKey) prepare(getenv func(string) string, urls string) error {
	if !m.used {
		return nil
	}
	given := m.key.File != "" || m.key.Command != ""
	local := onLoopback(urls)
	switch {
	case m.key.File != "" && m.key.Command != "":
		return errors.New("--master-key and --master-key-command exclude each other")
	case !given && !local:
		return fmt.Errorf("--master-key or --master-key-command is required, because NATS at %s is not on this machine", urls)
	case !given:
		m.key.File = masterkey.DefaultFile(getenv)
	}
	m.source = m.key.Source(local, func() { m.created.Store(true) })
	return nil
}

// prepareFor is prepare for a service with a store of its own, in a data directory.
func (m *masterKey) prepareFor(data string, getenv func(string) string) error {
	if m.source != nil {
		return nil
	}
	if err := m.prepare(getenv, ""); err != nil {
		return err
	}
	if m.key.Inside(data) {
		return fmt.Errorf("--master-key %s: must be outside of the data directory %s, whose data it seals", m.key.File, data)
	}
	return nil
}

// ephemeral uses a new key that is never stored.
func (m *masterKey) ephemeral() {
	text := seal.NewMaster()
	m.source = func(context.Context, bool) (*seal.Master, error) { return seal.ParseMaster(text) }
}

// Intervals at which a service reports which keys it can open, with a file and with a command,
// which may be slow.
const (
	reportEvery        = 3 * time.Second
	reportCommandEvery = time.Minute
)

// announce reports which keys a service can open, until ctx ends. stop waits for that.
func (m *masterKey) announce(ctx context.Context, log *events.Log, role string) (stop func()) {
	if !m.used {
		return func() {}
	}
	every := reportEvery
	if m.key.Command != "" {
		every = reportCommandEvery
	}
	ctx, cancel := context.WithCancel(ctx)
	var done sync.WaitGroup
	done.Go(func() { log.Announce(ctx, serviceName(role), every) })
	return func() { cancel(); done.Wait() }
}

// serviceName returns the name of a service of this process for operators.
func serviceName(role string) string {
	return fmt.Sprintf("%s on %s (pid %d)", role, hostName(), os.Getpid())
}

func graceFlag(f *pflag.FlagSet, grace *time.Duration) {
	f.DurationVar(grace, "data-key-grace", 0, "minimum time that a replaced data key is kept, twice: before the search for its values, and before its removal (default 10m)")
}

func checkGrace(grace time.Duration) error {
	return firstInvalid(setting{"data-key-grace", grace, grace == 0 || grace >= reaper.MinKeyGrace, "at least " + reaper.MinKeyGrace.String()})
}

// where returns where the key lies, for people.
func (m *masterKey) where() string {
	switch {
	case m.key.Command != "":
		return "from --master-key-command"
	case m.created.Load():
		return m.key.File + " (new: BACK IT UP, without it the secrets in the store are lost)"
	}
	return m.key.File
}

// onLoopback reports whether all URLs, separated by commas, are of this machine.
func onLoopback(urls string) bool {
	for _, s := range strings.Split(urls, ",") {
		if s = strings.TrimSpace(s); s == "" {
			continue
		}
		if !strings.Contains(s, "://") {
			s = "nats://" + s
		}
		u, err := url.Parse(s)
		if err != nil {
			return false
		}
		if ip := net.ParseIP(u.Hostname()); u.Hostname() != "localhost" && (ip == nil || !ip.IsLoopback()) {
			return false
		}
	}
	return true
}
