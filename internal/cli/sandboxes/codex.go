package sandboxes

import (
	"context"
	"fmt"
	"net/http"
	"strings"

	"github.com/spf13/cobra"

	"github.com/millrace/millrace/internal/cli/client"
	"github.com/millrace/millrace/internal/cli/command"
)

func (a *app) codexCommand() *cobra.Command {
	c := &cobra.Command{Use: "codex", Short: "Run the commands of the codex CLI in sandboxes"}
	c.AddCommand(a.codexURL())
	return c
}

func (a *app) codexURL() *cobra.Command {
	var sandbox string
	c := &cobra.Command{
		Use:   "url",
		Short: "Print the codex CLI's configuration",
		Long: `Print what codex's environments.toml must contain to run commands in a sandbox, and
the variable that has the same effect. Without --sandbox each session gets a sandbox
of its own, which ends with it. The output contains a credential.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, asJSON, err := a.Open()
			if err != nil {
				return err
			}
			conf := codexConfig{URL: webSocketURL(c.Base()) + "/codex/new", Token: c.APIKey()}
			if sandbox != "" {
				err = command.ByID(cmd.Context(), c, command.SandboxIDs(), sandbox, func(id string) (err error) {
					conf, err = codexSandbox(cmd.Context(), c, id)
					return err
				})
			}
			switch {
			case err != nil:
				return err
			case asJSON:
				return a.WriteJSON(conf)
			}
			_, err = fmt.Fprint(a.Out, conf)
			return err
		},
	}
	c.Flags().StringVarP(&sandbox, "sandbox", "s", "", "sandbox for all sessions (default one per session)")
	a.FlagIs(c, "sandbox", command.SandboxIDs())
	return c
}

// codexConfig is what the codex CLI needs to know.
type codexConfig struct {
	URL   string `json:"url"`
	Token string `json:"auth_bearer_token,omitempty"` // empty: in the URL
}

// codexSandbox returns the configuration for a sandbox. Its token is part of the URL, because
// codex sends a token in a header only to loopback and with TLS.
func codexSandbox(ctx context.Context, c *client.Client, id string) (codexConfig, error) {
	var sandbox client.CreatedSandbox
	_, err := c.Call(ctx, &client.Request{Method: http.MethodGet, Path: client.SandboxPath(id)}, &sandbox)
	conf := codexConfig{URL: webSocketURL(c.Base()) + "/codex/" + sandbox.ID}
	if sandbox.AccessToken == "" { // it requires none elsewhere
		conf.Token = c.APIKey()
	} else {
		conf.URL += "?token=" + sandbox.AccessToken
	}
	return conf, err
}

// webSocketURL returns a URL with the scheme of WebSocket.
func webSocketURL(u string) string { return "ws" + strings.TrimPrefix(u, "http") }

// String returns the configuration as environments.toml.
func (c codexConfig) String() string {
	var b strings.Builder
	b.WriteString("# $CODEX_HOME/environments.toml (default ~/.codex). Without include_local = false, codex runs\n" +
		"# commands on its own machine if it cannot connect.\n")
	fmt.Fprintf(&b, "default = \"millrace\"\ninclude_local = false\n\n[[environments]]\nid = \"millrace\"\nurl = %q\n", c.URL)
	if c.Token != "" {
		fmt.Fprintf(&b, "auth_bearer_token = %q\n", c.Token)
		return b.String()
	}
	fmt.Fprintf(&b, "\n# Or, instead of the file:\n# export CODEX_EXEC_SERVER_URL='%s'\n", c.URL)
	return b.String()
}
