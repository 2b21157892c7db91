package deictic

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/millrace/millrace/services/hostd/internal/deictic/llm"
)

// Limits of the history.
const (
	maxHistory  = 400 << 10 // bytes of the messages of a request
	maxPictures = 3         // pictures of a request, the latest ones; the record has none
	maxRecord   = 4 << 20   // bytes of the file, beyond which it is rewritten without what requests leave out
)

// entry is a line of the record: a message, or the end of a turn.
type entry struct {
	Message *llm.Message `json:"message,omitempty"`
	End     string       `json:"end,omitempty"` // status of the turn
}

// history has the messages of an agent. With a path they are kept in a file.
type history struct {
	path     string
	messages []llm.Message
	open     bool // the last turn has not ended
	size     int64
}

// openHistory reads the record of a conversation. A line that a crash cut off is left out.
func openHistory(path string) (*history, error) {
	h := &history{path: path}
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return h, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	r := bufio.NewReader(f)
	good := int64(0)
	for {
		line, err := r.ReadBytes('\n')
		if err != nil {
			break // the end, or a line without its end
		}
		good += int64(len(line))
		var e entry
		if json.Unmarshal(line, &e) != nil {
			continue
		}
		if e.Message != nil {
			h.messages = append(h.messages, *e.Message)
			h.open = true
		}
		if e.End != "" {
			h.open = false
		}
		h.messages = bounded(h.messages, maxHistory)
	}
	h.size = good
	if info, err := f.Stat(); err == nil && info.Size() > good {
		if err := os.Truncate(path, good); err != nil {
			return nil, err
		}
	}
	h.messages = paired(h.messages)
	if h.size > maxRecord {
		return h, h.rewrite()
	}
	return h, nil
}

// lost is the result of a tool that may have run.
const lost = "[the agent was interrupted before it had the result of this tool, which may have run]"

// paired returns messages in which each call has its result, and each result its call: the APIs refuse others.
func paired(all []llm.Message) []llm.Message {
	out := make([]llm.Message, 0, len(all))
	for i := 0; i < len(all); i++ {
		m := all[i]
		if m.Role == llm.Tool { // of no answer
			continue
		}
		out = append(out, m)
		if m.Role != llm.Assistant || len(m.Calls) == 0 {
			continue
		}
		results := map[string]llm.Result{}
		for ; i+1 < len(all) && all[i+1].Role == llm.Tool; i++ {
			for _, r := range all[i+1].Results {
				results[r.ID] = r
			}
		}
		for _, c := range m.Calls {
			r, ok := results[c.ID]
			if !ok {
				r = llm.Result{ID: c.ID, Output: lost, Failed: true}
			}
			out = append(out, llm.Message{Role: llm.Tool, Results: []llm.Result{r}})
		}
	}
	return out
}

// add appends a message, to the file first.
func (h *history) add(m llm.Message) error {
	if err := h.append(entry{Message: &m}); err != nil {
		return err
	}
	h.messages = bounded(append(h.messages, m), maxHistory)
	latestPictures(h.messages)
	h.open = true
	if h.path != "" && h.size > maxRecord {
		return h.rewrite()
	}
	return nil
}

// end records the end of a turn.
func (h *history) end(status string) error {
	h.open = false
	return h.append(entry{End: status})
}

// append writes an entry in one write, so that a crash leaves all of it or an incomplete last line.
func (h *history) append(e entry) error {
	if h.path == "" {
		return nil
	}
	line, err := json.Marshal(e)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(h.path), 0o700); err != nil {
		return err
	}
	f, err := os.OpenFile(h.path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(append(line, '\n'))
	if err == nil {
		err = f.Sync()
	}
	h.size += int64(len(line)) + 1
	return errors.Join(err, f.Close())
}

// rewrite replaces the file by one with the messages that requests still have.
func (h *history) rewrite() error {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	for i := range h.messages {
		if err := enc.Encode(entry{Message: &h.messages[i]}); err != nil {
			return err
		}
	}
	if !h.open {
		if err := enc.Encode(entry{End: statusCompleted}); err != nil {
			return err
		}
	}
	tmp := h.path + ".new"
	if err := os.WriteFile(tmp, b.Bytes(), 0o600); err != nil {
		return err
	}
	h.size = int64(b.Len())
	return os.Rename(tmp, h.path)
}

func sizeOf(m *llm.Message) int {
	n := len(m.Text) + len(m.Reasoning) + 16
	for i := range m.Calls {
		n += len(m.Calls[i].Args) + len(m.Calls[i].Extra) + len(m.Calls[i].Name) + 64
	}
	for i := range m.Results {
		n += len(m.Results[i].Output) + 64
	}
	return n
}

// latestPictures removes all but the last pictures.
func latestPictures(all []llm.Message) {
	n := 0
	for i := len(all) - 1; i >= 0; i-- {
		for j := range all[i].Results {
			r := &all[i].Results[j]
			if r.Picture == nil {
				continue
			}
			if n++; n > maxPictures {
				r.Picture = nil
			}
		}
	}
}

// removed stands for the output of a tool that is too old to be sent again.
const removed = "[removed: the conversation is too long]"

// bounded returns the last messages, of at most limit bytes if that is possible. Whole turns are left out,
// the oldest first; the last turn remains, but its oldest results and arguments are emptied.
func bounded(all []llm.Message, limit int) []llm.Message {
	total := 0
	for i := range all {
		total += sizeOf(&all[i])
	}
	start := 0
	for total > limit {
		next := start + 1
		for next < len(all) && all[next].Role != llm.User {
			next++
		}
		if next >= len(all) {
			break
		}
		for ; start < next; start++ {
			total -= sizeOf(&all[start])
		}
	}
	if total <= limit {
		return all[start:]
	}
	out := append([]llm.Message(nil), all[start:]...)
	for i := 0; i < len(out)-2 && total > limit; i++ {
		total -= sizeOf(&out[i])
		out[i] = emptied(out[i])
		total += sizeOf(&out[i])
	}
	return out
}

// emptied returns a message without its long parts. A prompt stays.
func emptied(m llm.Message) llm.Message {
	const long = 256
	if m.Role == llm.User {
		return m
	}
	m.Reasoning = ""
	m.Calls = append([]llm.Call(nil), m.Calls...)
	for i := range m.Calls {
		if len(m.Calls[i].Args) > long {
			m.Calls[i].Args = json.RawMessage(`{}`)
		}
	}
	m.Results = append([]llm.Result(nil), m.Results...)
	for i := range m.Results {
		if len(m.Results[i].Output) > long {
			m.Results[i].Output = removed
		}
	}
	return m
}
