package screens

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"testing"

	"github.com/millrace/millrace/events/keyframe"
	"github.com/millrace/millrace/events/process"
	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/services/gateway/internal/core"
)

// shelf is a store of frames in memory.
type shelf struct {
	mu   sync.Mutex
	all  map[uint64]keyframe.Frame
	last *keyframe.Frame
	err  error
}

func (s *shelf) PutLast(_ context.Context, _ process.ID, f *keyframe.Frame) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err == nil {
		s.last = f
	}
	return s.err
}

func (s *shelf) Put(_ context.Context, _ process.ID, n uint64, f *keyframe.Frame) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err == nil {
		s.all[n] = *f
	}
	return s.err
}

func (s *shelf) Last(context.Context, process.ID) (keyframe.Frame, bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.last == nil {
		return keyframe.Frame{}, false, s.err
	}
	return *s.last, true, s.err
}

func (s *shelf) All(context.Context, process.ID) (out []keyframe.Frame, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, f := range s.all {
		out = append(out, f)
	}
	if s.last != nil {
		out = append(out, *s.last)
	}
	slices.SortFunc(out, func(a, b keyframe.Frame) int { return int(a.Seq) - int(b.Seq) })
	return out, s.err
}

func (s *shelf) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.all)
}

// gatewayOf returns the folds of a gateway that shares frames with others, and how many bytes it has folded.
func gatewayOf(l *long, s *shelf) (f *folds, read *int) {
	f, read = newFolds(l, defaultCache), new(int)
	f.stored = newStored(s, f.cache, slog.New(slog.DiscardHandler))
	f.folded = func(n int) { *read += n }
	return f, read
}

func (f *folds) text(t *testing.T, id process.ID, seq process.Seq) string {
	t.Helper()
	at, err := f.at(t.Context(), core.Principal{}, id, seq)
	if err != nil {
		t.Fatal(err)
	}
	return string(frameOf(at, nil).screen())
}

// A gateway that has never seen a terminal shows any screen of it after it has read at most the output
// between two frames that another gateway has stored.
func TestStoredFramesServeAnotherGateway(t *testing.T) {
	l, s, id := newLong(), &shelf{all: make(map[uint64]keyframe.Frame)}, process.NewID("i1")
	first, read := gatewayOf(l, s)
	first.text(t, id, 0)
	if *read != longEvents*longChunk || s.count() != longEvents*longChunk/keyframe.Every {
		t.Fatalf("read %d bytes, stored %d frames", *read, s.count())
	}
	for _, seq := range []process.Seq{0, longEvents - 10, longEvents / 2, 100, 70, 3} {
		second, read := gatewayOf(l, s)
		got := second.text(t, id, seq)
		if want := first.text(t, id, seq); got != want {
			t.Errorf("event %d: another screen", seq)
		}
		if most := keyframe.Every + longChunk; *read > most || seq == 0 && *read > lastEvery {
			t.Errorf("event %d: read %d bytes, want at most %d", seq, *read, most)
		}
	}
	// Frames of another gateway that were stored after this one has looked are found, too.
	third, read := gatewayOf(l, &shelf{all: make(map[uint64]keyframe.Frame)})
	third.text(t, id, 100)
	third.stored.frames = s
	*read = 0
	third.text(t, id, longEvents-10)
	if most := keyframe.Every + longChunk; *read > most {
		t.Errorf("read %d bytes, want at most %d", *read, most)
	}
}

// Output that is not kept must not be in a stored frame.
func TestFramesOfUnkeptOutputAreNotStored(t *testing.T) {
	for _, policy := range []sandbox.Policy{sandbox.RecordMeta, sandbox.RecordNone} {
		s := &shelf{all: make(map[uint64]keyframe.Frame)}
		l := newLong()
		l.policy = policy
		f, _ := gatewayOf(l, s)
		f.text(t, process.NewID("i1"), 200)
		if s.count() != 0 || s.last != nil {
			t.Errorf("%v: frames are stored", policy)
		}
	}
}

func TestScreensDoNotNeedStoredFrames(t *testing.T) {
	s := &shelf{all: make(map[uint64]keyframe.Frame), err: errors.New("down")}
	f, read := gatewayOf(newLong(), s)
	f.text(t, process.NewID("i1"), 200)
	if *read != 200*longChunk {
		t.Errorf("read %d bytes", *read)
	}
}

// BenchmarkOpenStored opens a terminal on a gateway that has never seen it: at the end, and at random
// events.
func BenchmarkOpenStored(b *testing.B) {
	l, s, id := newLong(), &shelf{all: make(map[uint64]keyframe.Frame)}, process.NewID("i1")
	f, _ := gatewayOf(l, s)
	if _, err := f.at(b.Context(), core.Principal{}, id, 0); err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		f, _ := gatewayOf(l, s)
		if _, err := f.at(b.Context(), core.Principal{}, id, 0); err != nil {
			b.Fatal(err)
		}
	}
}
