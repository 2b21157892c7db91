package templates

import (
	"context"
	"fmt"
	"maps"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/millrace/millrace/events/template"
	"github.com/millrace/millrace/internal/cli/client"
	"github.com/millrace/millrace/internal/cli/command"
	"github.com/millrace/millrace/internal/cli/output"
	"github.com/millrace/millrace/internal/image"
)

// app runs the subcommands of template.
type app struct{ *command.Env }

// Command returns the command template.
func Command(e *command.Env) *cobra.Command {
	a := &app{e}
	c := &cobra.Command{
		Use:     "template",
		Aliases: []string{"templates"},
		Short:   "Build, import, list and remove templates",
		Long: `A template is the root file system of new sandboxes. The template "host" (or "base")
always exists: it has the host's own programs. Other templates are built from Debian
packages or imported from container images; hosts download them by themselves.`,
	}
	c.AddCommand(a.templateBuild(), a.templateImport(), a.templateList(), a.templateShow(), a.templateRemove())
	return c
}

func (a *app) templateBuild() *cobra.Command {
	var b image.Build
	var as string
	var services []string
	recipes := image.Recipes()
	var about strings.Builder
	for _, name := range slices.Sorted(maps.Keys(recipes)) {
		fmt.Fprintf(&about, "  %-16s %s\n", name, recipes[name])
	}
	c := &cobra.Command{
		Use:       "build RECIPE",
		Short:     "Build a template from Debian packages",
		Long:      "Build a template from Debian packages with mmdebstrap, which does not require root. The\nrecipes are\n\n" + about.String(),
		Args:      cobra.ExactArgs(1),
		ValidArgs: slices.Sorted(maps.Keys(recipes)),
		RunE: func(cmd *cobra.Command, args []string) error {
			if as == "" {
				as = args[0]
			}
			return a.makeTemplate(cmd.Context(), as, 0, func(ctx context.Context, scratch string, p *progress) (*image.Image, map[string]string, error) {
				b.Scratch, b.Say = scratch, p.say
				b.MCPGateway = func(ctx context.Context) (string, error) {
					return a.MCPGateway(ctx, func(msg string, _ ...any) { p.say(msg) })
				}
				img, files, err := image.Debian(ctx, args[0], b)
				if err == nil {
					img.Services, err = withServices(img.Services, services)
				}
				return img, files, err
			})
		},
	}
	f := c.Flags()
	f.StringVar(&as, "as", "", "name of the template, as NAME or NAME:TAG (default the recipe's name)")
	f.StringVar(&b.Suite, "suite", "", "Debian release (default this machine's, else bookworm)")
	f.StringVar(&b.Mirror, "mirror", "", "URL of the package mirror (default this machine's, else Debian's)")
	f.StringSliceVar(&b.Add, "add", nil, "additional packages, separated by commas (default none)")
	addServices(c, &services)
	return c
}

func (a *app) templateImport() *cobra.Command {
	var facts image.Facts
	var maxSize int64
	var env, services []string
	c := &cobra.Command{
		Use:   "import SOURCE NAME[:TAG]",
		Short: "Import a container image as a template",
		Long: `Import a container image as a template. SOURCE is an OCI layout (a directory or a
tar), a tar from docker save, a tar of a root file system, or the name of an image
in a registry.`,
		Args: cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			own, err := command.Pairs(env)
			if err != nil {
				return err
			}
			return a.makeTemplate(cmd.Context(), args[1], maxSize, func(ctx context.Context, scratch string, p *progress) (*image.Image, map[string]string, error) {
				p.say("reading " + args[0])
				img, err := image.Open(ctx, args[0], scratch)
				if err != nil {
					return nil, nil, err
				}
				if img.Env == nil {
					img.Env = map[string]string{}
				}
				maps.Copy(img.Env, own)
				if facts.User != "" {
					img.User, img.Group = facts.User, ""
				}
				if facts.Workdir != "" {
					img.Workdir = facts.Workdir
				}
				img.Sudo = facts.Sudo
				img.Services, err = withServices(img.Services, services)
				return img, nil, err
			})
		},
	}
	f := c.Flags()
	f.StringVar(&facts.User, "user", "", "default user of processes (default the image's, else user)")
	f.StringVar(&facts.Workdir, "workdir", "", "default working directory (default the image's, else the user's home)")
	f.StringArrayVarP(&env, "env", "e", nil, "environment variable of all processes, as NAME=VALUE; repeatable (default the image's)")
	addServices(c, &services)
	f.BoolVar(&facts.Sudo, "sudo", false, "let the default user become root with sudo")
	f.Int64Var(&maxSize, "max-size", 0, "maximum unpacked size in bytes (default 16 GiB)")
	return c
}

// opener opens or builds an image, and returns files to add to it.
type opener func(ctx context.Context, scratch string, p *progress) (*image.Image, map[string]string, error)

// makeTemplate turns an image into a template and uploads it to the gateway.
func (a *app) makeTemplate(ctx context.Context, as string, maxSize int64, open opener) error {
	c, err := a.Client()
	if err != nil {
		return err
	}
	if _, err := template.ParseNew(as); err != nil { // before a build of minutes
		return err
	}
	if _, err := c.Templates(ctx); err != nil {
		return err
	}
	scratch, err := os.MkdirTemp("", "millrace-template-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(scratch)
	begun := time.Now()
	p := a.progress()
	defer p.end()
	img, files, err := open(ctx, scratch, p)
	if err != nil {
		return err
	}
	if img.Arch != runtime.GOARCH {
		a.Notef("the image is for %s: only hosts of that architecture can run it", img.Arch)
	}
	up := newUpload(ctx, c)
	manifest, id, err := image.Pack(up.ctx, img, image.Options{MaxSize: maxSize, Files: files, Progress: p.bytes}, up.part)
	if waited := up.wait(); waited != nil { // it also made Pack fail
		return waited
	}
	if err != nil {
		return err
	}
	p.end()
	var info client.Template
	if err := tag(ctx, c, as, manifest, &info); err != nil {
		return err
	}
	p.say("waiting for a host to download it")
	if err := awaitTemplate(ctx, c, as, &info); err != nil {
		a.Notef("no host has downloaded it yet (%v): the first sandbox will wait for that", err)
	}
	if json, err := a.JSON(); err != nil || json {
		if err == nil {
			err = a.WriteJSON(info)
		}
		return err
	}
	_, err = fmt.Fprintf(a.Out, "%s:%s %s\n", info.Name, info.Tag, id)
	a.Notef("%d files, %s, in %v; uploaded %s", info.Files, output.Bytes(info.Size), time.Since(begun).Round(100*time.Millisecond), output.Bytes(up.sent.Load()))
	return err
}

func (a *app) templateList() *cobra.Command {
	return &cobra.Command{
		Use: "ls", Aliases: []string{"list"}, Short: "List templates", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := a.Client()
			if err != nil {
				return err
			}
			all, err := c.Templates(cmd.Context())
			if err != nil {
				return err
			}
			if json, err := a.JSON(); err != nil || json {
				if err == nil {
					err = a.WriteJSON(all)
				}
				return err
			}
			rows := [][]string{{"host", "-", "-", "0 B", "-", "all"}}
			now := time.Now()
			for _, t := range all {
				rows = append(rows, []string{t.Name, t.Tag, t.ID[:min(len(t.ID), 12)], output.Bytes(t.Size), output.Age(now, &t.Tagged.Time), strings.Join(t.Hosts, ",")})
			}
			return a.Table([]string{"NAME", "TAG", "ID", "SIZE", "AGE", "HOSTS"}, rows)
		},
	}
}

func (a *app) templateShow() *cobra.Command {
	return &cobra.Command{
		Use: "show TEMPLATE", Short: "Show the details of a template", Args: command.IDArgs(cobra.ExactArgs(1)),
		ValidArgsFunction: a.CompleteArgs(command.TemplateIDs(), 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := a.Client()
			if err != nil {
				return err
			}
			var t client.Template
			if err := command.ByID(cmd.Context(), c, command.TemplateIDs(), args[0], func(id string) error {
				_, err := c.Call(cmd.Context(), &client.Request{Method: "GET", Path: client.TemplatePath(id)}, &t)
				return err
			}); err != nil {
				return err
			}
			return a.WriteJSON(t)
		},
	}
}

func (a *app) templateRemove() *cobra.Command {
	return &cobra.Command{
		Use: "rm TEMPLATE...", Short: "Remove names of templates", Args: command.IDArgs(cobra.MinimumNArgs(1)),
		Long: `Remove names of templates: one name by NAME or NAME:TAG, or all names by the
template's id. A template without names is deleted.`,
		ValidArgsFunction: a.CompleteArgs(command.TemplateIDs(), 0),
		RunE: a.Each(command.TemplateIDs(), func(ctx context.Context, c *client.Client, name string) error {
			_, err := c.Call(ctx, &client.Request{Method: "DELETE", Path: client.TemplatePath(name)}, nil)
			return err
		}),
	}
}
