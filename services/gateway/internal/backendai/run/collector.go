package run

import (
	"bytes"
	"encoding/json"
	"strings"

	"github.com/millrace/millrace/events/process"
)

// Position is where a result ends in the record of its run.
type Position struct {
	After  process.Seq // all events up to it are processed
	Offset uint64      // bytes of standard output that are processed
}

// maxLine is the maximum length of a line: a picture is one line. A longer one is dropped.
const maxLine = 32 << 20

// Collector makes results of a record. It belongs to one goroutine.
type Collector struct {
	at      Position
	pending []byte // standard output from at.Offset on
	marks   []mark // of the events in pending
	last    process.Seq
	stderr  []byte // of the process itself, the reason if it could not run
	end     *process.Exit
	failed  string // why it did not start
	console console
}

// mark is an event with standard output.
type mark struct {
	seq process.Seq
	end uint64 // offset of its end
}

// NewCollector returns a collector that continues at a position.
func NewCollector(at Position) *Collector { return &Collector{at: at, last: at.After} }

// Position returns the position after the last result.
func (c *Collector) Position() Position {
	for len(c.marks) > 0 && c.marks[0].end <= c.at.Offset {
		c.marks = c.marks[1:]
	}
	c.at.After = c.last
	if len(c.marks) > 0 {
		c.at.After = c.marks[0].seq - 1
	}
	return c.at
}

const maxStderr = 4 << 10

// Add adds the next event of the record.
func (c *Collector) Add(e process.Event) {
	c.last = e.Seq
	switch b := e.Body.(type) {
	case process.Wrote:
		c.wrote(e.Seq, &b)
	case process.Failed:
		c.failed = b.Message
	case process.Finished:
		c.end = &b.Exit
		c.last-- // it is the result of later requests, too
	default:
		// They do not change the result.
	}
}

func (c *Collector) wrote(seq process.Seq, w *process.Wrote) {
	if w.Stream != process.Stdout {
		c.stderr = append(c.stderr, w.Data[:min(len(w.Data), maxStderr-min(len(c.stderr), maxStderr))]...)
		return
	}
	end := w.Offset + uint64(len(w.Data))
	if end <= c.at.Offset {
		return
	}
	data := w.Data
	if w.Offset < c.at.Offset {
		data = data[c.at.Offset-w.Offset:]
	}
	c.pending = append(c.pending, data...)
	c.marks = append(c.marks, mark{seq, end})
}

// Take returns the result if it is complete: the status has changed, or there is as much output as
// one result may have. Otherwise more events are needed.
func (c *Collector) Take() (Result, bool) {
	for {
		i := bytes.IndexByte(c.pending, '\n')
		if i < 0 {
			break
		}
		r, taken, done := c.line(c.pending[:i])
		if taken {
			c.advance(i + 1)
		}
		if done {
			return r, true
		}
	}
	if len(c.pending) > maxLine {
		c.advance(len(c.pending)) // the rest of the line is not JSON, and dropped as well
	}
	if c.end != nil {
		return c.ended(), true
	}
	return Result{}, false
}

// Flush returns what has happened so far.
func (c *Collector) Flush() Result { return c.result(Continued) }

// Empty reports whether there is no output for Flush.
func (c *Collector) Empty() bool { return len(c.console.items) == 0 }

// advance marks n bytes as processed.
func (c *Collector) advance(n int) {
	c.at.Offset += uint64(n)
	if c.pending = c.pending[n:]; len(c.pending) == 0 {
		c.pending = nil
	}
}

func (c *Collector) result(s Status) Result {
	r := Result{Status: s, Files: []string{}, Console: c.console.items}
	if r.Console == nil {
		r.Console = []Item{}
	}
	c.console = console{}
	return r
}

func (c *Collector) finished(s Status, code int) Result {
	r := c.result(s)
	r.ExitCode = &code
	return r
}

// ended returns the result of a process that ended without reporting an exit code.
func (c *Collector) ended() Result {
	if c.failed != "" {
		c.console.add(Item{Type: "stderr", Text: c.failed + "\n"})
		return c.finished(Finished, NotRun)
	}
	if c.end.Cause == process.CauseTimeout {
		return c.result(Timeout)
	}
	if c.end.Code != nil && c.end.Signal == 0 {
		c.console.add(Item{Type: "stderr", Text: strings.ToValidUTF8(string(c.stderr), "\uFFFD")})
	}
	return c.finished(Finished, Interrupted)
}

// text is a line of a run.
type text struct {
	Type      string
	Text      string
	Name      string
	Traceback string
	Code      int
	Password  bool

	HTML, SVG, PNG, JPEG string
}

// line processes a line. taken is false if it belongs to the next result; done reports that the
// result is complete.
func (c *Collector) line(raw []byte) (r Result, taken, done bool) {
	var l text
	if json.Unmarshal(raw, &l) != nil {
		return r, true, false // not printed by the run's own program
	}
	switch l.Type {
	case "stdout", "stderr":
		if c.console.full(l.Type, l.Text) {
			return c.result(Continued), false, true
		}
		c.console.add(Item{Type: l.Type, Text: l.Text})
	case "result":
		c.show(&l)
	case "error":
		c.console.add(Item{Type: "stderr", Text: withNewline(l.Traceback)})
	case "input":
		r = c.result(WaitingInput)
		r.Options = &Options{Password: l.Password}
		return r, true, true
	case "step":
		status := BuildFinished
		if l.Name == "clean" {
			status = CleanFinished
		}
		return c.finished(status, l.Code), true, true
	case "end_of_execution":
		return c.finished(Finished, l.Code), false, true
	}
	return r, true, false
}

// show adds a displayed value in its richest form.
func (c *Collector) show(l *text) {
	switch {
	case l.PNG != "":
		c.console.add(Item{Type: "media", Mime: "image/png", Text: l.PNG})
	case l.JPEG != "":
		c.console.add(Item{Type: "media", Mime: "image/jpeg", Text: l.JPEG})
	case l.SVG != "":
		c.console.add(Item{Type: "media", Mime: "image/svg+xml", Text: l.SVG})
	case l.HTML != "":
		c.console.add(Item{Type: "html", Text: l.HTML})
	default:
		c.console.add(Item{Type: "stdout", Text: withNewline(l.Text)})
	}
}

func withNewline(s string) string {
	if s == "" || strings.HasSuffix(s, "\n") {
		return s
	}
	return s + "\n"
}

// Drain appends the text of all complete lines so far.
func (c *Collector) Drain(dst []byte) []byte {
	for {
		r, ok := c.Take()
		if !ok {
			r = c.Flush()
		}
		for _, i := range r.Console {
			if i.Type != "media" {
				dst = append(dst, i.Text...)
			}
		}
		if !ok || r.Status == Finished || r.Status == Timeout {
			return dst
		}
	}
}
