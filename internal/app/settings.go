package app

import (
	"context"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/millrace/millrace/events"
	"github.com/millrace/millrace/events/checkup"
	"github.com/millrace/millrace/internal/cli/command"
	"github.com/millrace/millrace/internal/ops"
)

// fromEnv sets each flag that is not on the command line from MILLRACE_<NAME> if that is
// set: flags override the environment, and the environment overrides defaults.
func fromEnv(flags *pflag.FlagSet, getenv func(string) string) error {
	var first error
	flags.VisitAll(func(f *pflag.Flag) {
		name := "MILLRACE_" + strings.ToUpper(strings.ReplaceAll(f.Name, "-", "_"))
		v := getenv(name)
		if f.Changed || v == "" || first != nil {
			return
		}
		if err := flags.Set(f.Name, v); err != nil {
			first = fmt.Errorf("%s %q %s", name, v, command.Form(f, err))
		}
	})
	return first
}

// common holds the settings of every service.
type common struct {
	logLevel, logFormat string
	operation           operation
}

func (c *common) flags(f *pflag.FlagSet, level string) {
	f.StringVar(&c.logLevel, "log-level", level, "minimum log level: debug, info, warn or error")
	f.StringVar(&c.logFormat, "log-format", "text", "log format on standard error: text or json")
	c.operation.flags(f)
}

// logger returns the program's logger. Libraries write what remote peers send, in any
// amount, to Go's default logger, so that goes to the level debug.
func (c *common) logger(cfg *command.Config) (*slog.Logger, error) {
	var level slog.Level
	if err := level.UnmarshalText([]byte(c.logLevel)); err != nil {
		return nil, fmt.Errorf("--log-level: %w", err)
	}
	opt := &slog.HandlerOptions{Level: level}
	var h slog.Handler
	switch c.logFormat {
	case "text":
		h = slog.NewTextHandler(cfg.Err, opt)
	case "json":
		h = slog.NewJSONHandler(cfg.Err, opt)
	default:
		return nil, fmt.Errorf("--log-format %s: must be text or json", c.logFormat)
	}
	log.SetFlags(0)
	log.SetOutput(slog.NewLogLogger(h, slog.LevelDebug).Writer())
	return slog.New(h), nil
}

// streams holds the settings of every service that connects to NATS. They apply when the
// streams are created, so all services should have the same values.
type streams struct {
	url         string
	token       string
	replicas    int
	shards      int
	retention   time.Duration
	maxOutput   int64
	maxContexts int64
	maxStore    int64
	maxFiles    int64 // of workspaces
	keys        masterKey
	version     string // of the program
}

func (s *streams) flags(f *pflag.FlagSet, remote bool) {
	if remote {
		f.StringVar(&s.url, "nats", "nats://127.0.0.1:4222", "NATS servers, separated by commas")
		f.StringVar(&s.token, "nats-token", "", "token for the NATS servers; prefer MILLRACE_NATS_TOKEN (default none)")
		f.IntVar(&s.replicas, "replicas", 1, "number of replicas of new streams; 3 in a cluster of three")
	}
	f.IntVar(&s.shards, "shards", 1, "number of output streams, when they are created")
	f.DurationVar(&s.retention, "retention", events.DefaultRetention, "retention time of output, when its streams are created")
	f.Int64Var(&s.maxContexts, "max-build-files", events.DefaultMaxContexts, "maximum size in bytes of the store for template build files, when it is created; uploads beyond it are rejected until files are a week old and deleted")
	f.Int64Var(&s.maxOutput, "max-output", events.DefaultMaxOutput, "maximum size in bytes of stored output, when its streams are created; less on a small disk; beyond it the oldest output is deleted")
	f.Int64Var(&s.maxFiles, "max-workspaces", events.DefaultMaxWorkspaces, "maximum size in bytes of the store for files of workspaces, when it is created; less on a small disk; uploads beyond it are rejected")
	f.Int64Var(&s.maxStore, "max-store", events.DefaultMaxStore, "maximum size in bytes of the template and snapshot store, when it is created; less on a small disk; uploads beyond it are rejected")
}

func (s *streams) config(role string, r *ops.Role, log *slog.Logger) events.Config {
	return events.Config{Observers: r.Observers(), URL: s.url, Token: s.token, Name: strings.TrimSpace(checkup.ServicePrefix + role + " " + s.version), Replicas: s.replicas, Shards: s.shards, Retention: s.retention, MaxOutput: s.maxOutput, MaxContexts: s.maxContexts, MaxStore: s.maxStore, MaxWorkspaces: s.maxFiles, MasterKey: s.keys.source, Log: log}
}

// open connects to the log. It waits for NATS until ctx ends.
func (s *streams) open(ctx context.Context, role string, r *ops.Role, log *slog.Logger) (*events.Log, error) {
	log.Info("waiting for NATS", "url", s.url)
	l, err := events.Open(ctx, s.config(role, r, log))
	if err != nil && ctx.Err() != nil {
		return nil, ctx.Err()
	}
	return l, err
}

// role returns a subcommand that runs until it is stopped by a signal.
func role(cfg *command.Config, use, short string, bound func() time.Duration, flags func(*pflag.FlagSet), run func(ctx context.Context) error) *cobra.Command {
	c := &cobra.Command{
		Use: use, Short: short, Args: cobra.NoArgs, SilenceUsage: true,
		PreRunE: func(cmd *cobra.Command, _ []string) error { return fromEnv(cmd.Flags(), cfg.Getenv) },
		RunE: func(cmd *cobra.Command, _ []string) error {
			serve(cmd.Context())
			err := runBounded(cmd.Context(), bound(), run)
			if ended := cmd.Context().Err(); ended != nil && errors.Is(err, ended) {
				return nil // stopped during its start
			}
			return err
		},
	}
	flags(c.Flags())
	return c
}

// hostName returns this machine's name, reduced to the characters of a host's name.
func hostName() string {
	name, err := os.Hostname()
	if err != nil {
		return "host"
	}
	name, _, _ = strings.Cut(strings.ToLower(name), ".")
	name = strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' || r == '-' {
			return r
		}
		return '-'
	}, name)
	if name == "" {
		return "host"
	}
	return name[:min(63, len(name))]
}
