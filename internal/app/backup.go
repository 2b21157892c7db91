package app

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/millrace/millrace/events/backup"
	"github.com/millrace/millrace/internal/cli/command"
)

// backups holds the settings of the commands that make and read backups.
type backups struct {
	cfg    *command.Config
	target backup.Target
	key    string
	dir    string
	id     string
}

func (b *backups) natsFlags(f *pflag.FlagSet) {
	f.StringVar(&b.target.URL, "nats", "nats://127.0.0.1:4222", "NATS servers, separated by commas")
	f.StringVar(&b.target.Token, "nats-token", "", "token for the NATS servers; prefer MILLRACE_NATS_TOKEN (default none)")
}

func (b *backups) keyFlag(f *pflag.FlagSet) {
	f.StringVar(&b.key, "backup-key", "", "file of the key that seals the backup, 64 hexadecimal digits (required)")
}

func (b *backups) fromFlags(f *pflag.FlagSet) {
	f.StringVar(&b.dir, "from", "", "directory of the backups (required)")
	f.StringVar(&b.id, "backup", "", "id of the backup (default the newest)")
	b.keyFlag(f)
}

// command returns a command that ends by itself.
func (b *backups) command(use, short, long string, flags func(*pflag.FlagSet), run func(context.Context) error) *cobra.Command {
	c := &cobra.Command{
		Use: use, Short: short, Long: long, Args: cobra.NoArgs, SilenceUsage: true,
		PreRunE: func(cmd *cobra.Command, _ []string) error { return fromEnv(cmd.Flags(), b.cfg.Getenv) },
		RunE:    func(cmd *cobra.Command, _ []string) error { return run(cmd.Context()) },
	}
	flags(c.Flags())
	return c
}

func backupCommand(cfg *command.Config) *cobra.Command {
	b := &backups{cfg: cfg}
	var full bool
	c := b.command("backup", "Back up a running installation", `Back up a running installation into a directory. Each backup after the first one
reads only what was stored since. All files are sealed with the backup key.

The master key of the installation is not in the backup: keep copies of both keys,
but not beside the backup.`, func(f *pflag.FlagSet) {
		b.natsFlags(f)
		f.StringVar(&b.dir, "to", "", "directory of the backups, created if it does not exist (required)")
		b.keyFlag(f)
		f.BoolVar(&full, "full", false, "read everything, also what an earlier backup in the directory has")
	}, func(ctx context.Context) error { return b.backUp(ctx, full) })
	verify := &backups{cfg: cfg}
	c.AddCommand(verify.command("verify", "Verify all files of a backup", `Verify all files that a restore of a backup needs, also those of the backups before
it: their checksums, their seals and the order of their messages.`, verify.fromFlags, verify.verify))
	return c
}

func restoreCommand(cfg *command.Config) *cobra.Command {
	b := &backups{cfg: cfg}
	var replicas int
	return b.command("restore", "Restore a backup into empty NATS servers", `Restore a backup into NATS servers without streams, before the services start. After
a cut, repeat the command: services do not start until it has finished.

Sandboxes that ran at the time of the backup are lost; records, keys and files in
the object stores are as they were. Start hosts with an empty data directory.`, func(f *pflag.FlagSet) {
		b.fromFlags(f)
		b.natsFlags(f)
		f.IntVar(&replicas, "replicas", 0, "number of replicas of each stream (default as in the backup)")
	}, func(ctx context.Context) error { return b.restore(ctx, replicas) })
}

func (b *backups) backUp(ctx context.Context, full bool) error {
	if b.dir == "" {
		return errors.New("--to is required")
	}
	key, err := backup.ReadKey(b.key)
	if err != nil {
		return err
	}
	var read uint64
	m, err := backup.Run(ctx, backup.Options{
		Target: b.target, Dir: b.dir, Key: key, Full: full, Version: b.cfg.Version,
		Progress: func(stream string, p *backup.Part) {
			read += p.Payload
			fmt.Fprintf(b.cfg.Err, "%s: %d messages, %s\n", stream, p.Messages, mib(p.Payload))
		},
	})
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(b.cfg.Out, "backup %s: %s read in %s\n", m.ID, mib(read), took(m.Ended.Sub(m.Began)))
	return err
}

func (b *backups) open() (*backup.Manifest, *backup.Key, error) {
	if b.dir == "" {
		return nil, nil, errors.New("--from is required")
	}
	key, err := backup.ReadKey(b.key)
	if err != nil {
		return nil, nil, err
	}
	m, err := backup.ReadManifest(b.dir, b.id, key)
	return m, key, err
}

func (b *backups) verify(ctx context.Context) error {
	m, key, err := b.open()
	if err != nil {
		return err
	}
	r, err := backup.Verify(ctx, b.dir, m, key)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(b.cfg.Out, "backup %s of %s is intact: %d messages in %d files, %s\n", m.ID, m.Began.Format(time.RFC3339), r.Messages, r.Files, mib(uint64(r.Bytes)))
	return err
}

func (b *backups) restore(ctx context.Context, replicas int) error {
	m, key, err := b.open()
	if err != nil {
		return err
	}
	begun := time.Now()
	_, err = backup.Restore(ctx, backup.RestoreOptions{
		Target: b.target, Dir: b.dir, ID: m.ID, Key: key, Replicas: replicas,
		Progress: func(stream string, messages uint64) {
			fmt.Fprintf(b.cfg.Err, "%s: %d messages\n", stream, messages)
		},
	})
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(b.cfg.Out, "restored backup %s of %s in %s\n", m.ID, m.Began.Format(time.RFC3339), took(time.Since(begun)))
	return err
}

func mib(n uint64) string { return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20)) }

func took(d time.Duration) string { return d.Round(time.Millisecond).String() }
