package dataplane

import (
	"context"
	"time"

	"github.com/millrace/millrace/events/process"
	"github.com/millrace/millrace/services/gateway/internal/stream"
)

// source yields the record of a command. If its output is not text, all events but the last are
// yielded twice: the encoder distinguishes the second pass by its seqs.
type source struct {
	stream.Source
	again  func(context.Context) (stream.Source, error) // opens the record at its beginning
	kill   func()                                       // ends the command
	check  textCheck
	second bool
	ended  bool // the command has ended
}

// Next returns the next events.
func (s *source) Next(ctx context.Context, idle time.Duration) ([]process.Event, error) {
	batch, err := s.Source.Next(ctx, idle)
	if s.second || len(batch) == 0 {
		return batch, err
	}
	for i := range batch {
		s.check.add(&batch[i])
	}
	last := len(batch) - 1
	if _, over := batch[last].Body.(process.Finished); !over {
		return batch, err
	}
	s.ended = true
	if s.check.end() {
		return batch, err
	}
	again, err := s.again(ctx)
	if err != nil {
		return batch[:last], err
	}
	s.Source.Close()
	s.Source, s.second = again, true
	return batch[:last], nil
}

// Close releases the record, and ends the command unless it has ended: no client waits for it.
func (s *source) Close() {
	s.Source.Close()
	if !s.ended {
		s.kill()
	}
}
