package backendai

import (
	"context"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/process"
	"github.com/millrace/millrace/services/gateway/internal/backendai/terminal"
	"github.com/millrace/millrace/services/gateway/internal/record"
	"github.com/millrace/millrace/services/gateway/internal/stream"
)

// firstEvents is how many events at the end of a record are read first for its history.
const firstEvents = 64

// history returns the last output of a process, and its record after that.
func (v *viewer) history(ctx context.Context, id process.ID) (stream.Source, []byte, *process.Exit, error) {
	tip, err := v.h.cfg.Operations.Tail(ctx, v.p, id)
	if err != nil && !kind.Is(err, kind.NotFound) {
		return nil, nil, nil, err
	}
	for events := process.Seq(firstEvents); ; events *= 8 {
		after := tip.Last - min(tip.Last, events)
		opened, err := record.Open(ctx, v.h.cfg.Operations, v.p, id, record.Options{Position: record.Position{After: after}, Follow: true})
		if err != nil {
			return nil, nil, nil, err
		}
		history, exit, err := readHistory(ctx, opened.Source, tip.Last)
		if err == nil && (after == 0 || len(history) >= terminal.Window) {
			return opened.Source, history, exit, nil
		}
		opened.Source.Close()
		if err != nil {
			return nil, nil, nil, err
		}
	}
}

// readHistory reads the output of a record up to an event. It returns its last part, and how the
// process ended; nil if it has not.
func readHistory(ctx context.Context, src stream.Source, last process.Seq) (out []byte, exit *process.Exit, err error) {
	for src.After() < last {
		batch, err := src.Next(ctx, 0)
		for i := range batch {
			if w, ok := batch[i].Body.(process.Wrote); ok {
				out = append(out, w.Data...)
			}
			if f, ok := batch[i].Body.(process.Finished); ok {
				exit = &f.Exit
			}
		}
		if len(out) > 2*terminal.Window {
			out = append([]byte(nil), out[len(out)-terminal.Window:]...)
		}
		if err != nil {
			return nil, nil, err
		}
	}
	return out[max(0, len(out)-terminal.Window):], exit, nil
}
