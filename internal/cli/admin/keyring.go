package admin

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/millrace/millrace/internal/cli/client"
	"github.com/millrace/millrace/internal/masterkey"
)

func (a *app) keyringCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "keyring",
		Short: "Show and rotate the keys that seal secrets",
		Long: `Show and rotate the keys that seal the secrets in the store.

The master key lies outside of the store and seals the data keys, which seal the
secrets. To replace the master key:

  millrace keyring new-master      on one machine; copy the file to all others
  millrace keyring rotate-master   once all services have the new key
  millrace keyring drop-master     on each machine

To replace the data key and seal all secrets again: millrace keyring rotate.`,
	}
	c.AddCommand(a.keyringShow(), a.keyringRotate(), a.keyringRotateMaster(), a.keyringNewMaster(), a.keyringDropMaster())
	return c
}

func (a *app) keyringShow() *cobra.Command {
	return &cobra.Command{
		Use:     "ls",
		Aliases: []string{"list", "status"},
		Short:   "Show keys, services and the progress of a rotation",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, _, err := a.Open()
			if err != nil {
				return err
			}
			k, err := c.Keyring(cmd.Context())
			if err != nil {
				return err
			}
			return a.showKeyring(&k)
		},
	}
}

const keyringPoll = 500 * time.Millisecond // interval between two polls of a rotation

func (a *app) keyringRotate() *cobra.Command {
	var wait, force bool
	c := &cobra.Command{
		Use:   "rotate",
		Short: "Make a new data key and seal secrets again",
		Long: `Make a new data key. A reaper then seals all stored secrets again in the background, and
removes the replaced key when no record needs it any more: records of sandboxes and
processes keep values until they expire.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, _, err := a.Open()
			if err != nil {
				return err
			}
			k, err := c.Keyring(cmd.Context())
			if err != nil {
				return err
			}
			if k, err = c.RotateDataKey(cmd.Context(), k.Current(), force); err != nil {
				return err
			}
			t := time.NewTicker(keyringPoll)
			defer t.Stop()
			for wait && !k.Sealed {
				select {
				case <-t.C:
				case <-cmd.Context().Done():
					return cmd.Context().Err()
				}
				left := k.Left
				if k, err = c.Keyring(cmd.Context()); err != nil {
					return err
				}
				if k.Left != left {
					a.Notef("sealed again: %d, left: %d", k.Resealed, k.Left)
				}
			}
			return a.showKeyring(&k)
		},
	}
	c.Flags().BoolVar(&wait, "wait", false, "wait until all secrets are sealed again")
	forceFlag(c, &force)
	return c
}

func forceFlag(c *cobra.Command, force *bool) {
	c.Flags().BoolVar(force, "force", false, "rotate even if a running service could not open the keys")
}

func (a *app) keyringRotateMaster() *cobra.Command {
	var force bool
	c := &cobra.Command{
		Use:   "rotate-master",
		Short: "Seal the data keys with the new master key",
		Long: `Seal the data keys with the gateway's current master key, the first one in its file. After
that the replaced master key no longer opens the store. The command fails and changes
nothing while a running gateway, host or reaper does not have the new key.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, _, err := a.Open()
			if err != nil {
				return err
			}
			k, err := c.RotateMasterKey(cmd.Context(), force)
			if err != nil {
				return err
			}
			return a.showKeyring(&k)
		},
	}
	forceFlag(c, &force)
	return c
}

// masterFile returns the file of this machine's master key.
func (a *app) masterFile(given string) (masterkey.Key, error) {
	if given == "" {
		given = a.Getenv("MILLRACE_MASTER_KEY")
	}
	if given == "" && a.Getenv("MILLRACE_MASTER_KEY_COMMAND") != "" {
		return masterkey.Key{}, errors.New("the master key comes from a command: change it where the command reads it, the new key in the first line")
	}
	if given == "" {
		given = masterkey.DefaultFile(a.Getenv)
	}
	return masterkey.Key{File: given}, nil
}

func (a *app) keyringNewMaster() *cobra.Command {
	var file string
	c := &cobra.Command{
		Use:   "new-master",
		Short: "Add a new master key to this machine's file",
		Long: `Add a new master key to this machine's file, before the others. Services read the file
again by themselves. Nothing changes in the store until "millrace keyring rotate-master".`,
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			k, err := a.masterFile(file)
			if err != nil {
				return err
			}
			m, err := k.Add()
			if err != nil {
				return err
			}
			a.Notef("%s: the new master key is %s. Back up the file, copy it to every machine with a gateway, a host or a reaper, then run: millrace keyring rotate-master", k.File, m.ID())
			return nil
		},
	}
	c.Flags().StringVar(&file, "master-key", "", "file of the master key (default MILLRACE_MASTER_KEY, else that of the services)")
	return c
}

func (a *app) keyringDropMaster() *cobra.Command {
	var file string
	c := &cobra.Command{
		Use:   "drop-master",
		Short: "Remove replaced master keys from the file",
		Long: `Remove the replaced master keys from this machine's file. The command fails unless the first
key of the file seals the store.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			k, err := a.masterFile(file)
			if err != nil {
				return err
			}
			c, _, err := a.Open()
			if err != nil {
				return err
			}
			m, err := k.Source(false, func() {})(cmd.Context(), false)
			if err != nil {
				return err
			}
			now, err := c.Keyring(cmd.Context())
			if err != nil {
				return err
			}
			if now.Master != m.ID() {
				return fmt.Errorf("the store is sealed with the master key %s, and the first one in %s is %s: run millrace keyring rotate-master first", now.Master, k.File, m.ID())
			}
			if m, err = k.KeepCurrent(); err == nil {
				a.Notef("%s: has only the master key %s", k.File, m.ID())
			}
			return err
		},
	}
	c.Flags().StringVar(&file, "master-key", "", "file of the master key (default MILLRACE_MASTER_KEY, else that of the services)")
	return c
}

func (a *app) showKeyring(k *client.Keyring) error {
	asJSON, err := a.JSON()
	if err != nil {
		return err
	}
	if asJSON {
		return a.WriteJSON(k)
	}
	fmt.Fprintf(a.Out, "master key %s\n\n", k.Master)
	var rows [][]string
	for _, d := range k.DataKeys {
		rows = append(rows, []string{strconv.FormatUint(uint64(d.Number), 10), d.State, use(k, &d)})
	}
	if err := a.Table([]string{"DATA KEY", "STATE", "USE"}, rows); err != nil {
		return err
	}
	fmt.Fprintln(a.Out)
	rows = rows[:0]
	for _, s := range k.Services {
		has := "no"
		if slices.Contains(s.Masters, k.Master) {
			has = "yes"
		}
		rows = append(rows, []string{s.Name, has, strings.Join(s.Masters, " "), orDash(s.Problem)})
	}
	if err := a.Table([]string{"SERVICE", "OPENS", "MASTER KEYS", "PROBLEM"}, rows); err != nil {
		return err
	}
	fmt.Fprintln(a.Out)
	rows = rows[:0]
	for _, x := range k.Changes {
		what := strings.ReplaceAll(x.Type, "_", " ")
		if x.Data > 0 {
			what += " " + strconv.FormatUint(uint64(x.Data), 10)
		}
		rows = append(rows, []string{client.FormatTime(x.Time), what, x.Master, orDash(x.By)})
	}
	return a.Table([]string{"TIME", "CHANGE", "MASTER KEY", "BY"}, rows)
}

// use says what needs a data key.
func use(k *client.Keyring, d *client.DataKey) string {
	switch {
	case d.State == "current" && !k.Sealed:
		return fmt.Sprintf("sealed again: %d values, left: %d", k.Resealed, k.Left)
	case d.State == "current":
		return "new values"
	case d.Stream != "" && d.Stored != nil:
		return fmt.Sprintf("needed by a value in %s of %s", d.Stream, client.FormatTime(*d.Stored))
	}
	return "kept until no value needs it"
}
