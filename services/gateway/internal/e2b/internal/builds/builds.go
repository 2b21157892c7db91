package builds

import (
	"context"
	"math"
	"strings"

	"github.com/gofiber/fiber/v2"

	"github.com/millrace/millrace/events/build"
	"github.com/millrace/millrace/events/catalog"
	"github.com/millrace/millrace/services/gateway/internal/auth"
	"github.com/millrace/millrace/services/gateway/internal/builds"
	"github.com/millrace/millrace/services/gateway/internal/core"
	"github.com/millrace/millrace/services/gateway/internal/e2b/internal/wire"
	"github.com/millrace/millrace/services/gateway/internal/e2b/limits"
	"github.com/millrace/millrace/services/gateway/internal/templatestore"
)

// Builds are the builds of templates.
type Builds interface {
	RequestBuild(ctx context.Context, p core.Principal, req build.Requested) (build.State, error)
	StartBuild(ctx context.Context, p core.Principal, tmpl string, id build.ID, spec build.Spec) error
	SealCredentials(tenant string, id build.ID, with builds.Credentials) ([]byte, error)
	Build(ctx context.Context, p core.Principal, tmpl string, id build.ID) (catalog.Build, error)
	BuildLines(ctx context.Context, b *catalog.Build, from, most int, keep func(*build.Line) bool) ([]build.Line, bool, error)
}

// Templates are the templates that were built.
type Templates interface {
	BuiltPublic(p core.Principal, name string) bool
}

// Handler serves builds.
type Handler struct {
	builds    Builds
	templates Templates
	kick      func()
}

// New returns a handler. It calls kick when a build is requested.
func New(b Builds, t Templates, kick func()) *Handler { return &Handler{b, t, kick} }

// Request serves POST /v3/templates: it creates a build that waits for its files.
func (h *Handler) Request(c *fiber.Ctx) error {
	var body struct {
		Name     string   `json:"name"`
		Alias    string   `json:"alias"`
		TeamID   string   `json:"teamID"`
		Tags     []string `json:"tags"`
		CPUCount *float64 `json:"cpuCount"`
		MemoryMB *int64   `json:"memoryMB"`
	}
	if err := wire.Decode(c, &body, true); err != nil {
		return err
	}
	if body.Name == "" {
		body.Name = body.Alias
	}
	if body.Name == "" {
		return wire.Invalid("name is required")
	}
	p := auth.From(c)
	req := build.Requested{}
	name, err := p.NewName(body.Name)
	if err == nil {
		err = wire.OwnTeam(p, body.TeamID)
	}
	if err != nil {
		return err
	}
	if req.Name, req.Tags, err = templatestore.ParseBuildName(name, body.Tags); err != nil {
		return err
	}
	switch n := body.CPUCount; {
	case n == nil:
	case !(*n >= limits.MinCPUs && *n <= limits.MaxCPUs):
		return wire.Invalid("cpuCount must be between %v and %v", limits.MinCPUs, limits.MaxCPUs)
	default:
		req.CPUMilli = uint32(math.Round(*n * 1000))
	}
	switch n := body.MemoryMB; {
	case n == nil:
	case *n < limits.MinMemory || *n > limits.MaxMemory:
		return wire.Invalid("memoryMB must be between %d and %d", limits.MinMemory, limits.MaxMemory)
	default:
		req.MemoryMiB = uint32(*n)
	}
	s, err := h.builds.RequestBuild(c.UserContext(), p, req)
	if err != nil {
		return err
	}
	names := []string{req.Name}
	return c.Status(fiber.StatusAccepted).JSON(fiber.Map{
		"templateID": s.Request.Template, "buildID": string(s.ID), "public": h.templates.BuiltPublic(p, req.Name),
		"names": names, "aliases": names, "tags": req.Tags,
	})
}

// startBody is E2B's TemplateBuildStartV2.
type startBody struct {
	FromImage    string        `json:"fromImage"`
	FromTemplate string        `json:"fromTemplate"`
	Registry     *registryBody `json:"fromImageRegistry"`
	StartCmd     string        `json:"startCmd"`
	ReadyCmd     string        `json:"readyCmd"`
	Force        bool          `json:"force"`
	Steps        []struct {
		Type      string   `json:"type"`
		Args      []string `json:"args"`
		FilesHash string   `json:"filesHash"`
		Force     bool     `json:"force"`
	} `json:"steps"`
}

// registryBody is E2B's FromImageRegistry.
type registryBody struct {
	Type           string `json:"type"`
	Username       string `json:"username"`
	Password       string `json:"password"`
	ServiceAccount string `json:"serviceAccountJson"`
	AWSKey         string `json:"awsAccessKeyId"`
	AWSSecret      string `json:"awsSecretAccessKey"`
	AWSRegion      string `json:"awsRegion"`
}

// Start serves POST /v2/templates/:id/builds/:build.
func (h *Handler) Start(c *fiber.Ctx) error {
	tmpl, id, err := buildOf(c)
	if err != nil {
		return err
	}
	var body startBody
	if err := wire.Decode(c, &body, true); err != nil {
		return err
	}
	spec := build.Spec{Image: body.FromImage, Template: body.FromTemplate, Start: body.StartCmd, Ready: body.ReadyCmd, Force: body.Force}
	for _, s := range body.Steps {
		spec.Steps = append(spec.Steps, build.Step{Type: s.Type, Args: s.Args, Files: s.FilesHash, Force: s.Force})
	}
	if spec.Credentials, err = h.credentials(auth.From(c).Tenant, id, body.Registry); err != nil {
		return err
	}
	if err := h.builds.StartBuild(c.UserContext(), auth.From(c), tmpl, id, spec); err != nil {
		return err
	}
	h.kick()
	return c.Status(fiber.StatusAccepted).Send(nil) // clients expect JSON or an empty body
}

func (h *Handler) credentials(tenant string, id build.ID, r *registryBody) ([]byte, error) {
	switch {
	case r == nil:
		return nil, nil
	case r.Type == "registry":
		return h.builds.SealCredentials(tenant, id, builds.Credentials{Username: r.Username, Password: r.Password})
	case r.Type == "gcp":
		return h.builds.SealCredentials(tenant, id, builds.Credentials{Username: "_json_key", Password: r.ServiceAccount})
	case r.Type != "aws":
		return nil, wire.Invalid("fromImageRegistry: type must be registry, gcp or aws: got %.20q", r.Type)
	case !wire.IsWord(r.AWSKey) || len(r.AWSKey) > maxAWSKey || r.AWSSecret == "" || len(r.AWSSecret) > maxAWSKey:
		return nil, wire.Invalid("fromImageRegistry: awsAccessKeyId and awsSecretAccessKey must be an AWS access key")
	case len(r.AWSRegion) > maxRegion || strings.Trim(r.AWSRegion, "abcdefghijklmnopqrstuvwxyz0123456789-") != "" || strings.Trim(r.AWSRegion, "-") == "":
		return nil, wire.Invalid("fromImageRegistry: awsRegion %.64q is not an AWS region", r.AWSRegion)
	}
	return h.builds.SealCredentials(tenant, id, builds.Credentials{Username: r.AWSKey, Password: r.AWSSecret, Region: r.AWSRegion})
}

// Maximum lengths of an access key and of a region's name in bytes. The region becomes
// part of a host name.
const (
	maxAWSKey = 128
	maxRegion = 32
)

// buildOf parses the template and the build in the path.
func buildOf(c *fiber.Ctx) (string, build.ID, error) {
	tmpl, err := wire.PathName(c)
	if err != nil {
		return "", "", err
	}
	id, err := build.ParseID(strings.Clone(c.Params("build")))
	return tmpl, id, err
}
