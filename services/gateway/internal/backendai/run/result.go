package run

import "encoding/json"

// Status is the status of a run.
type Status string

// Statuses.
const (
	Continued     Status = "continued"      // it runs
	CleanFinished Status = "clean-finished" // the first step of a batch has ended
	BuildFinished Status = "build-finished" // the second
	WaitingInput  Status = "waiting-input"  // it reads its standard input
	Finished      Status = "finished"
	Timeout       Status = "exec-timeout"
)

// Exit codes that no program returned.
const (
	NotRun      = 127 // the step before it failed
	Interrupted = 130 // it was interrupted, or its kernel ended
)

// Result is what happened to a run since the last result.
type Result struct {
	Status   Status   `json:"status"`
	RunID    string   `json:"runId,omitempty"`
	ExitCode *int     `json:"exitCode"` // of a finished step or run
	Options  *Options `json:"options"`  // of a run that waits for input
	Files    []string `json:"files"`
	Console  []Item   `json:"console"`
}

// Options describe the input that a run waits for.
type Options struct {
	Password bool `json:"is_password"`
}

// Item is a piece of output: text of a type, or a medium with its media type.
type Item struct {
	Type string // stdout, stderr, html, media
	Text string
	Mime string // of a medium
}

// MarshalJSON encodes an item as a list of its type and its content.
func (i Item) MarshalJSON() ([]byte, error) {
	if i.Type == "media" {
		return json.Marshal([2]any{i.Type, [2]string{i.Mime, i.Text}})
	}
	return json.Marshal([2]string{i.Type, i.Text})
}

// console merges contiguous text of one type.
type console struct {
	items []Item
	size  map[string]int // characters by type
}

// maxText is the maximum number of characters of one type in a result.
const maxText = 524_288

// full reports whether text of a type belongs into the next result.
func (c *console) full(kind, text string) bool {
	return c.size[kind] > 0 && c.size[kind]+characters(text) > maxText
}

// characters returns the number of characters of a text, or more.
func characters(text string) int { return len(text) }

func (c *console) add(i Item) {
	if i.Text == "" {
		return
	}
	if c.size == nil {
		c.size = make(map[string]int)
	}
	c.size[i.Type] += characters(i.Text)
	if n := len(c.items); n > 0 && i.Type != "media" && c.items[n-1].Type == i.Type {
		c.items[n-1].Text += i.Text
		return
	}
	c.items = append(c.items, i)
}
