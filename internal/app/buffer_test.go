package app

import (
	"bytes"
	"strings"
	"sync"
)

// syncBuffer is a buffer that is safe for concurrent use and signals changes.
type syncBuffer struct {
	mu      sync.Mutex
	b       bytes.Buffer
	changed chan struct{}
}

func (s *syncBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.changed != nil {
		close(s.changed)
		s.changed = nil
	}
	return s.b.Write(p)
}

func (s *syncBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

// await waits until the buffer contains text or done is closed, and reports the former.
func (s *syncBuffer) await(text string, done <-chan struct{}) bool {
	for {
		s.mu.Lock()
		has := strings.Contains(s.b.String(), text)
		if s.changed == nil {
			s.changed = make(chan struct{})
		}
		changed := s.changed
		s.mu.Unlock()
		if has {
			return true
		}
		select {
		case <-changed:
		case <-done:
			return false
		}
	}
}
