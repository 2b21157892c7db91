package main

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
	"github.com/millrace/millrace/internal/cli"
)

// fromEnv sets each flag that was not given from MILLRACE_<NAME>, if that is
// set: flags win over the environment, the environment over defaults.
func fromEnv(flags *pflag.FlagSet, getenv func(string) string) error {
	var first error
	flags.VisitAll(func(f *pflag.Flag) {
		name := "MILLRACE_" + strings.ToUpper(strings.ReplaceAll(f.Name, "-", "_"))
		v := getenv(name)
		if f.Changed || v == "" || first != nil {
			return
		}
		if err := flags.Set(f.Name, v); err != nil {
			first = fmt.Errorf("%s %q %s", name, v, cli.Form(f, err))
		}
	})
	return first
}

// common are the settings of every service.
type common struct {
	logLevel, logFormat string
}

func (c *common) flags(f *pflag.FlagSet, level string) {
	f.StringVar(&c.logLevel, "log-level", level, "debug, info, warn or error")
	f.StringVar(&c.logFormat, "log-format", "text", "text or json, on standard error")
}

// logger makes the program's log. What libraries write to Go's own is what strangers have sent
// them, as much as they like: it is told as debug.
func (c *common) logger(cfg *cli.Config) (*slog.Logger, error) {
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
		return nil, fmt.Errorf("--log-format %s: text or json", c.logFormat)
	}
	log.SetFlags(0)
	log.SetOutput(slog.NewLogLogger(h, slog.LevelDebug).Writer())
	return slog.New(h), nil
}

// streams are the settings of every service that speaks to NATS. They shape the
// streams when these are first made, so all services should be given the same.
type streams struct {
	url         string
	token       string
	replicas    int
	shards      int
	retention   time.Duration
	maxOutput   int64
	maxContexts int64
	maxStore    int64
}

func (s *streams) flags(f *pflag.FlagSet, remote bool) {
	if remote {
		f.StringVar(&s.url, "nats", "nats://127.0.0.1:4222", "NATS servers, separated by commas")
		f.StringVar(&s.token, "nats-token", "", "that the NATS servers want to see; better given as MILLRACE_NATS_TOKEN")
		f.IntVar(&s.replicas, "replicas", 1, "of each stream, when it is made: 3 on a cluster of three")
	}
	f.IntVar(&s.shards, "shards", 1, "of the output, when its streams are made")
	f.DurationVar(&s.retention, "retention", events.DefaultRetention, "how long output is kept, when its streams are made")
	f.Int64Var(&s.maxContexts, "max-build-files", events.DefaultMaxContexts, "bytes kept of the files that template builds copy, when their store is made: more is refused until what is a week old goes")
	f.Int64Var(&s.maxOutput, "max-output", events.DefaultMaxOutput, "bytes of output kept, when its streams are made: past it, or where there is less room, the oldest goes")
	f.Int64Var(&s.maxStore, "max-store", events.DefaultMaxStore, "bytes of templates and snapshots that the servers keep, when their store is made; less where there is no room; what is over it is refused")
}

func (s *streams) config(role string, log *slog.Logger) events.Config {
	return events.Config{URL: s.url, Token: s.token, Name: "millrace-" + role, Replicas: s.replicas, Shards: s.shards, Retention: s.retention, MaxOutput: s.maxOutput, MaxContexts: s.maxContexts, MaxStore: s.maxStore, Log: log}
}

// open connects to the log; it waits for NATS as long as ctx lasts.
func (s *streams) open(ctx context.Context, role string, log *slog.Logger) (*events.Log, error) {
	log.Info("waiting for NATS", "url", s.url)
	l, err := events.Open(ctx, s.config(role, log))
	if err != nil && ctx.Err() != nil {
		return nil, ctx.Err()
	}
	return l, err
}

// role is a subcommand that runs until it is told to end.
func role(cfg *cli.Config, use, short string, bound func() time.Duration, flags func(*pflag.FlagSet), run func(ctx context.Context) error) *cobra.Command {
	c := &cobra.Command{
		Use: use, Short: short, Args: cobra.NoArgs, SilenceUsage: true,
		PreRunE: func(cmd *cobra.Command, _ []string) error { return fromEnv(cmd.Flags(), cfg.Getenv) },
		RunE: func(cmd *cobra.Command, _ []string) error {
			serve(cmd.Context())
			err := within(cmd.Context(), bound(), run)
			if ended := cmd.Context().Err(); ended != nil && errors.Is(err, ended) {
				return nil // it was told to end before it had begun
			}
			return err
		},
	}
	flags(c.Flags())
	return c
}

// hostName is this machine's name, as far as a host may be called it.
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
