package cli

import (
	"context"
	"fmt"
	"maps"
	"net/url"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/millrace/millrace/events/template"
	"github.com/millrace/millrace/internal/image"
)

// templateInfo is a template as the gateway shows it.
type templateInfo struct {
	Name   string            `json:"name"`
	Tag    string            `json:"tag"`
	ID     string            `json:"id"`
	Arch   string            `json:"arch"`
	Size   int64             `json:"size"`
	Files  int64             `json:"files"`
	Tagged moment            `json:"tagged_at"`
	Shared bool              `json:"shared"`
	Sudo   bool              `json:"sudo"`
	User   string            `json:"user"`
	Dir    string            `json:"workdir"`
	Env    map[string]string `json:"env"`
	Start  []string          `json:"start"`
	Hosts  []string          `json:"hosts"`
}

func templatePath(name string) string { return "/v1/templates/" + url.PathEscape(name) }

func (a *app) templateCommand() *cobra.Command {
	c := &cobra.Command{
		Use:     "template",
		Aliases: []string{"templates"},
		Short:   "Make, import, list and remove what sandboxes are made from",
		Long: `Templates are what sandboxes are made from. "host" (or "base") is always there:
the host's own programs. Others are built here from Debian's packages, or
imported from container images, and brought to the hosts by themselves.`,
	}
	c.AddCommand(a.templateBuild(), a.templateImport(), a.templateList(), a.templateShow(), a.templateRemove())
	return c
}

func (a *app) templateBuild() *cobra.Command {
	var b image.Build
	var as string
	recipes := image.Recipes()
	var about strings.Builder
	for _, name := range slices.Sorted(maps.Keys(recipes)) {
		fmt.Fprintf(&about, "  %-16s %s\n", name, recipes[name])
	}
	c := &cobra.Command{
		Use:       "build RECIPE",
		Short:     "Build a template from Debian's packages",
		Long:      "Build a template from Debian's packages, with mmdebstrap, as root or not:\n\n" + about.String(),
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
				return image.Debian(ctx, args[0], b)
			})
		},
	}
	f := c.Flags()
	f.StringVar(&as, "as", "", "NAME or NAME:TAG it gets; default: the recipe's name")
	f.StringVar(&b.Suite, "suite", "", "Debian's release; default: this machine's, or bookworm")
	f.StringVar(&b.Mirror, "mirror", "", "where packages are had; default: as on this machine, or Debian's own")
	f.StringSliceVar(&b.Add, "add", nil, "packages besides the recipe's")
	return c
}

func (a *app) templateImport() *cobra.Command {
	var facts image.Facts
	var maxSize int64
	var env []string
	c := &cobra.Command{
		Use:   "import SOURCE NAME[:TAG]",
		Short: "Make a template of a container image",
		Long: `Make a template of a container image: an OCI layout (a directory or a tar), a tar
that docker save wrote, a tar of a root's files, or an image's name in a registry.`,
		Args: cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			own, err := pairsOf(env)
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
				return img, nil, nil
			})
		},
	}
	f := c.Flags()
	f.StringVar(&facts.User, "user", "", "who runs what names no user; default: the image's, or `user`")
	f.StringVar(&facts.Workdir, "workdir", "", "where processes start; default: the image's, or the user's home")
	f.StringArrayVarP(&env, "env", "e", nil, "NAME=VALUE for every process, besides the image's")
	f.BoolVar(&facts.Sudo, "sudo", false, "user may become root with the image's sudo")
	f.Int64Var(&maxSize, "max-size", 0, "bytes that the image may unpack to; 0: 16 GiB")
	return c
}

func pairsOf(list []string) (map[string]string, error) {
	out := map[string]string{}
	for _, e := range list {
		k, v, ok := strings.Cut(e, "=")
		if !ok || k == "" {
			return nil, fmt.Errorf("%q is not NAME=VALUE", e)
		}
		out[k] = v
	}
	return out, nil
}

// opener finds or builds an image, with what is to be written over it.
type opener func(ctx context.Context, scratch string, p *progress) (*image.Image, map[string]string, error)

// makeTemplate makes a template of an image and sends it to the gateway.
func (a *app) makeTemplate(ctx context.Context, as string, maxSize int64, open opener) error {
	c, err := a.client()
	if err != nil {
		return err
	}
	if _, err := template.ParseNew(as); err != nil { // before minutes are spent on it
		return err
	}
	if _, err := c.templates(ctx); err != nil {
		return err
	}
	scratch, err := os.MkdirTemp("", "millrace-template-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(scratch) //nolint:errcheck // it is below the system's temporary files
	begun := time.Now()
	p := a.progress()
	defer p.end()
	img, files, err := open(ctx, scratch, p)
	if err != nil {
		return err
	}
	if img.Arch != runtime.GOARCH {
		a.notef("the image is for %s: only hosts of that kind can run it", img.Arch)
	}
	up := c.upload(ctx)
	manifest, id, err := image.Pack(up.ctx, img, image.Options{MaxSize: maxSize, Files: files, Progress: p.bytes}, up.part)
	if waited := up.wait(); waited != nil { // it ended Pack, too
		return waited
	}
	if err != nil {
		return err
	}
	p.end()
	var info templateInfo
	if err := c.tag(ctx, as, manifest, &info); err != nil {
		return err
	}
	p.say("waiting for a host to have it")
	if err := c.awaitTemplate(ctx, as, &info); err != nil {
		a.notef("no host has it yet (%v): the first sandbox made from it waits", err)
	}
	if json, err := a.json(); err != nil || json {
		if err == nil {
			err = a.writeJSON(info)
		}
		return err
	}
	_, err = fmt.Fprintf(a.Out, "%s:%s %s\n", info.Name, info.Tag, id)
	a.notef("%d files, %s, in %v; %s of it were sent", info.Files, bytesOf(info.Size), time.Since(begun).Round(100*time.Millisecond), bytesOf(up.sent.Load()))
	return err
}

func (a *app) templateList() *cobra.Command {
	return &cobra.Command{
		Use: "ls", Aliases: []string{"list"}, Short: "List templates", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := a.client()
			if err != nil {
				return err
			}
			all, err := c.templates(cmd.Context())
			if err != nil {
				return err
			}
			if json, err := a.json(); err != nil || json {
				if err == nil {
					err = a.writeJSON(all)
				}
				return err
			}
			rows := [][]string{{"host", "-", "-", "0 B", "-", "all"}}
			now := time.Now()
			for _, t := range all {
				rows = append(rows, []string{t.Name, t.Tag, t.ID[:min(len(t.ID), 12)], bytesOf(t.Size), age(now, &t.Tagged.Time), strings.Join(t.Hosts, ",")})
			}
			return a.table([]string{"NAME", "TAG", "ID", "SIZE", "AGE", "HOSTS"}, rows)
		},
	}
}

func (a *app) templateShow() *cobra.Command {
	return &cobra.Command{
		Use: "show TEMPLATE", Short: "Show all of a template, by name, NAME:TAG or id", Args: ids(cobra.ExactArgs(1)),
		ValidArgsFunction: a.completeArgs(templateIDs(), 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := a.client()
			if err != nil {
				return err
			}
			var t templateInfo
			if err := c.byID(cmd.Context(), templateIDs(), args[0], func(id string) error {
				_, err := c.call(cmd.Context(), &request{method: "GET", path: templatePath(id)}, &t)
				return err
			}); err != nil {
				return err
			}
			return a.writeJSON(t)
		},
	}
}

func (a *app) templateRemove() *cobra.Command {
	return &cobra.Command{
		Use: "rm TEMPLATE...", Short: "Remove names from templates, by an id all of them; what has none is gone", Args: ids(cobra.MinimumNArgs(1)),
		ValidArgsFunction: a.completeArgs(templateIDs(), 0),
		RunE: a.each(templateIDs(), func(ctx context.Context, c *client, name string) error {
			_, err := c.call(ctx, &request{method: "DELETE", path: templatePath(name)}, nil)
			return err
		}),
	}
}

// bytesOf is a number of bytes for people.
func bytesOf(n int64) string {
	const unit = 1024
	if n < unit {
		return fmt.Sprintf("%d B", n)
	}
	f, i := float64(n)/unit, 0
	for ; f >= unit && i < 3; i++ {
		f /= unit
	}
	return fmt.Sprintf("%.1f %ciB", f, "KMGT"[i])
}
