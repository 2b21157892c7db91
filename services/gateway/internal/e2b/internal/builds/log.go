package builds

import (
	"math"
	"slices"
	"time"

	"github.com/gofiber/fiber/v2"

	"github.com/millrace/millrace/events/build"
	"github.com/millrace/millrace/events/catalog"
	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/services/gateway/internal/auth"
	"github.com/millrace/millrace/services/gateway/internal/e2b/internal/wire"
)

// maxBuildLines is the maximum number of lines of a build's log in one response.
const maxBuildLines = 100

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

// Status serves GET /templates/:id/builds/:build/status.
func (h *Handler) Status(c *fiber.Ctx) error {
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
	lines, _, err := h.builds.BuildLines(c.UserContext(), &b, from, most, func(l *build.Line) bool { return l.Level >= level })
	if err != nil {
		return err
	}
	out := fiber.Map{
		"templateID": b.Request.Template, "buildID": string(b.ID), "status": string(b.Phase),
		"logs": []string{}, "logEntries": linesOf(lines),
	}
	if b.Phase == build.PhaseError {
		failed, _, err := h.builds.BuildLines(c.UserContext(), &b, max(0, b.Lines-maxBuildLines), maxBuildLines, func(l *build.Line) bool { return l.Level >= build.Error })
		if err != nil {
			return err
		}
		out["reason"] = buildReason{Message: b.Failure.Message, Step: b.Failure.Step, LogEntries: linesOf(failed)}
	}
	return c.JSON(out)
}

// findBuild finds the build in the path. If it does not exist, the error is Invalid, as at
// E2B.
func (h *Handler) findBuild(c *fiber.Ctx) (b catalog.Build, err error) {
	tmpl, id, err := buildOf(c)
	if err == nil {
		b, err = h.builds.Build(c.UserContext(), auth.From(c), tmpl, id)
	}
	if kind.Is(err, kind.NotFound) {
		err = wire.Invalid("build '%.100s' of template '%.200s' not found", c.Params("build"), tmpl)
	}
	return b, err
}

// Logs returns the log by time, in either direction.
func (h *Handler) Logs(c *fiber.Ctx) error {
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
	lines, _, err := h.builds.BuildLines(c.UserContext(), &b, 0, want, func(l *build.Line) bool {
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
