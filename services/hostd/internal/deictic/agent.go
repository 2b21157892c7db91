package deictic

import (
	"context"
	"errors"
	"fmt"

	"github.com/millrace/millrace/services/hostd/internal/deictic/llm"
)

// maxSteps limits the answers of a model in one turn.
const maxSteps = 200

// model answers requests.
type model interface {
	send(ctx context.Context, r *llm.Request, text func(string)) (llm.Answer, error)
}

// listener gets what happens in a turn. agent is the name of the agent.
type listener interface {
	text(agent, part string)
	answered(agent, text string, u llm.Usage)
	called(agent string, c *llm.Call)
	returned(agent string, r *llm.Result)
	captured(png []byte)
}

// agent asks a model and runs tools.
type agent struct {
	name   string
	system string
	tools  []tool
	model  model
	out    listener
}

var (
	errSteps   = fmt.Errorf("the turn was ended after %d answers of the model", maxSteps)
	errLength  = errors.New("the model's answer was cut off at its limit of tokens")
	errRefused = errors.New("the model's vendor refused the answer")
)

// run continues a turn until the model calls no more tools, and returns its last text, also with an error.
func (a *agent) run(ctx context.Context, h *history) (last string, err error) {
	req := llm.Request{System: a.system}
	for _, t := range a.tools {
		req.Tools = append(req.Tools, t.Declaration)
	}
	for range maxSteps {
		req.Messages = h.messages
		answer, err := a.model.send(ctx, &req, func(part string) { a.out.text(a.name, part) })
		if err != nil {
			return last, err
		}
		if err := h.add(answer.Message); err != nil {
			return last, fmt.Errorf("record the turn: %w", err)
		}
		if answer.Message.Text != "" {
			last = answer.Message.Text
		}
		a.out.answered(a.name, answer.Message.Text, answer.Usage)
		switch {
		case answer.Stop == llm.Refused:
			return last, errRefused
		case len(answer.Message.Calls) == 0 && answer.Stop == llm.Length:
			return last, errLength
		case len(answer.Message.Calls) == 0:
			return last, nil
		}
		for i := range answer.Message.Calls {
			r := a.call(ctx, &answer.Message.Calls[i])
			if ctx.Err() != nil {
				return last, ctx.Err()
			}
			if err := h.add(llm.Message{Role: llm.Tool, Results: []llm.Result{r}}); err != nil {
				return last, fmt.Errorf("record the turn: %w", err)
			}
		}
	}
	return last, errSteps
}

// call runs a tool. What goes wrong is its result.
func (a *agent) call(ctx context.Context, c *llm.Call) llm.Result {
	a.out.called(a.name, c)
	r := llm.Result{ID: c.ID}
	out, err := a.use(ctx, c)
	if err != nil {
		out.text, r.Failed = err.Error(), true
	}
	if out.text == "" {
		out.text = "[no output]"
	}
	r.Output, r.Picture = shorten(out.text, maxOutput+maxOutput/8), out.picture
	a.out.returned(a.name, &r)
	return r
}

func (a *agent) use(ctx context.Context, c *llm.Call) (output, error) {
	if c.Bad {
		return output{}, errors.New("the arguments are not a JSON object")
	}
	for _, t := range a.tools {
		if t.Name == c.Name {
			return t.run(ctx, c.Args)
		}
	}
	return output{}, fmt.Errorf("there is no tool %q", c.Name)
}
