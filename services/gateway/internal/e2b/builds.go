package e2b

import (
	"math"
	"slices"
	"strings"
	"time"

	"github.com/gofiber/fiber/v2"

	"github.com/millrace/millrace/events"
	"github.com/millrace/millrace/events/build"
	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/services/gateway/internal/auth"
	"github.com/millrace/millrace/services/gateway/internal/builds"
	"github.com/millrace/millrace/services/gateway/internal/e2b/internal/wire"
	"github.com/millrace/millrace/services/gateway/internal/e2b/limits"
	"github.com/millrace/millrace/services/gateway/internal/templatestore"
)

// maxBuildLines is the maximum number of lines of a build's log in one response.
const maxBuildLines = 100

// requestBuild serves POST /v3/templates: it creates a build that waits for its files.
func (h *Handler) requestBuild(c *fiber.Ctx) error {
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
	s, err := h.ops.Builds.RequestBuild(c.UserContext(), p, req)
	if err != nil {
		return err
	}
	names := []string{req.Name}
	return c.Status(fiber.StatusAccepted).JSON(fiber.Map{
		"templateID": s.Request.Template, "buildID": string(s.ID), "public": h.ops.Templates.BuiltPublic(p, req.Name),
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

func (h *Handler) startBuild(c *fiber.Ctx) error {
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
	if spec.Credentials, err = h.credentials(body.Registry); err != nil {
		return err
	}
	if err := h.ops.Builds.StartBuild(c.UserContext(), auth.From(c), tmpl, id, spec); err != nil {
		return err
	}
	h.cfg.Kick()
	return c.Status(fiber.StatusAccepted).Send(nil) // clients expect JSON or an empty body
}

func (h *Handler) credentials(r *registryBody) ([]byte, error) {
	switch {
	case r == nil:
		return nil, nil
	case r.Type == "registry":
		return h.ops.Builds.SealCredentials(builds.Credentials{Username: r.Username, Password: r.Password})
	case r.Type == "gcp":
		return h.ops.Builds.SealCredentials(builds.Credentials{Username: "_json_key", Password: r.ServiceAccount})
	case r.Type != "aws":
		return nil, wire.Invalid("fromImageRegistry: type must be registry, gcp or aws: got %.20q", r.Type)
	case !wire.IsWord(r.AWSKey) || len(r.AWSKey) > maxAWSKey || r.AWSSecret == "" || len(r.AWSSecret) > maxAWSKey:
		return nil, wire.Invalid("fromImageRegistry: awsAccessKeyId and awsSecretAccessKey must be an AWS access key")
	case len(r.AWSRegion) > maxRegion || strings.Trim(r.AWSRegion, "abcdefghijklmnopqrstuvwxyz0123456789-") != "" || strings.Trim(r.AWSRegion, "-") == "":
		return nil, wire.Invalid("fromImageRegistry: awsRegion %.64q is not an AWS region", r.AWSRegion)
	}
	return h.ops.Builds.SealCredentials(builds.Credentials{Username: r.AWSKey, Password: r.AWSSecret, Region: r.AWSRegion})
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

// buildLine is E2B's BuildLogEntry.
type buildLine struct {
	Timestamp time.Time `json:"timestamp"`
	Level     string    `json:"level"`
	Message   string    `json:"message"`
	Step      string    `json:"step,omitempty"`
}

func linesOf(lines []build.Line) []buildLine {
	out := make([]buildLine, len(lines))
	for i, l := range lines {
		out[i] = buildLine{Timestamp: l.Time.UTC(), Level: l.Level.String(), Message: l.Text}
	}
	return out
}

// buildReason is E2B's BuildStatusReason.
type buildReason struct {
	Message    string      `json:"message"`
	Step       string      `json:"step,omitempty"`
	LogEntries []buildLine `json:"logEntries"`
}

func (h *Handler) buildStatus(c *fiber.Ctx) error {
	b, err := h.findBuild(c)
	if err != nil {
		return err
	}
	from, err := wire.Number(c, "logsOffset", 0, 0, math.MaxInt32)
	if err != nil {
		return err
	}
	most, err := wire.Number(c, "limit", maxBuildLines, 0, maxBuildLines)
	if err != nil {
		return err
	}
	level, err := build.ParseLevel(c.Query("level"))
	if err != nil {
		return err
	}
	lines, _, err := h.ops.Builds.BuildLines(c.UserContext(), &b, from, most, func(l *build.Line) bool { return l.Level >= level })
	if err != nil {
		return err
	}
	out := fiber.Map{
		"templateID": b.Request.Template, "buildID": string(b.ID), "status": string(b.Phase),
		"logs": []string{}, "logEntries": linesOf(lines),
	}
	if b.Phase == build.PhaseError {
		failed, _, err := h.ops.Builds.BuildLines(c.UserContext(), &b, max(0, b.Lines-maxBuildLines), maxBuildLines, func(l *build.Line) bool { return l.Level >= build.Error })
		if err != nil {
			return err
		}
		out["reason"] = buildReason{Message: b.Failure.Message, Step: b.Failure.Step, LogEntries: linesOf(failed)}
	}
	return c.JSON(out)
}

// findBuild finds the build in the path. If it does not exist, the error is Invalid, as at
// E2B.
func (h *Handler) findBuild(c *fiber.Ctx) (b events.Build, err error) {
	tmpl, id, err := buildOf(c)
	if err == nil {
		b, err = h.ops.Builds.Build(c.UserContext(), auth.From(c), tmpl, id)
	}
	if kind.Is(err, kind.NotFound) {
		err = wire.Invalid("build '%.100s' of template '%.200s' not found", c.Params("build"), tmpl)
	}
	return b, err
}

// buildLogs returns the log by time, in either direction.
func (h *Handler) buildLogs(c *fiber.Ctx) error {
	b, err := h.findBuild(c)
	if err != nil {
		return err
	}
	most, err := wire.Number(c, "limit", maxBuildLines, 0, maxBuildLines)
	if err != nil {
		return err
	}
	level, err := build.ParseLevel(c.Query("level"))
	if err != nil {
		return err
	}
	cursor, err := wire.Millis(c.Query("cursor"))
	if err != nil {
		return err
	}
	backward := c.Query("direction") == "backward"
	if d := c.Query("direction"); d != "" && d != "forward" && !backward {
		return wire.Invalid("direction must be forward or backward")
	}
	want := most
	if backward {
		want = math.MaxInt32
	}
	lines, _, err := h.ops.Builds.BuildLines(c.UserContext(), &b, 0, want, func(l *build.Line) bool {
		return l.Level >= level && (cursor.IsZero() || backward && !l.Time.After(cursor) || !backward && !l.Time.Before(cursor))
	})
	if err != nil {
		return err
	}
	if backward {
		slices.Reverse(lines)
	}
	return c.JSON(fiber.Map{"logs": linesOf(lines[:min(len(lines), most)])})
}
