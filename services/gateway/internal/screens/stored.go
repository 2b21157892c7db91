package screens

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/millrace/millrace/events/keyframe"
	"github.com/millrace/millrace/events/process"
	"github.com/millrace/millrace/services/gateway/internal/screen"
)

// Frames stores key frames for all gateways: a *keyframe.Store.
type Frames interface {
	PutLast(ctx context.Context, id process.ID, f *keyframe.Frame) error
	Put(ctx context.Context, id process.ID, n uint64, f *keyframe.Frame) error
	Last(ctx context.Context, id process.ID) (keyframe.Frame, bool, error)
	All(ctx context.Context, id process.ID) ([]keyframe.Frame, error)
}

var _ Frames = (*keyframe.Store)(nil)

// FrameVersion is the version of key frames in a store.
const FrameVersion = screen.Version

const (
	// lastEvery is the number of bytes of output after which the last frame is stored again.
	lastEvery = 2 << 20
	// endEvery is the same at the end of a record.
	endEvery = 256 << 10
	// near is the number of events that are folded without a look for a stored frame between.
	near = 64

	maxKnown    = 1024 // number of processes whose stored frames are known
	frameReply  = time.Second
	framesPause = 10 * time.Second // after a failure
)

// stored stores key frames, and loads those that other gateways stored into the cache. Its methods may be
// called concurrently, for one process by one goroutine at a time.
type stored struct {
	frames Frames // nil: none
	cache  *cache
	log    *slog.Logger

	mu    sync.Mutex
	known map[process.ID]*known
	until time.Time // end of the pause after a failure
}

// known is what is known of the stored frames of a process.
type known struct {
	seqs   []process.Seq // of frames
	upTo   process.Seq   // all frames up to this event were loaded
	output uint64        // bytes of output before the last frame
}

func newStored(frames Frames, c *cache, log *slog.Logger) *stored {
	return &stored{frames: frames, cache: c, log: log, known: make(map[process.ID]*known)}
}

// of returns what is known of a process. It is guarded by the lock of the process.
func (s *stored) of(id process.ID) *known {
	s.mu.Lock()
	defer s.mu.Unlock()
	k := s.known[id]
	if k == nil {
		if len(s.known) >= maxKnown {
			clear(s.known)
		}
		k = &known{}
		s.known[id] = k
	}
	return k
}

func (s *stored) paused() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.frames == nil || time.Now().Before(s.until)
}

// failed pauses the use of the store after an error: everything works without it.
func (s *stored) failed(id process.ID, err error) {
	s.mu.Lock()
	s.until = time.Now().Add(framesPause)
	s.mu.Unlock()
	s.log.Warn("use stored key frames failed", "process", id, "err", err)
}

// load loads stored frames into the cache if one may be closer to event seq than the frame after event
// had. last is set if seq is the last event of the record. It reports whether it has loaded any.
func (s *stored) load(ctx context.Context, id process.ID, had, seq process.Seq, last bool) bool {
	if seq-had <= near || s.paused() {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, frameReply)
	defer cancel()
	k := s.of(id)
	if last {
		f, ok, err := s.frames.Last(ctx, id)
		if err != nil {
			s.failed(id, err)
		}
		if ok && f.Seq > had && f.Seq <= seq {
			s.add(id, k, &f)
			return true
		}
		if ok || err != nil {
			return false // the frame in memory is as close
		}
	}
	evicted := slices.ContainsFunc(k.seqs, func(at process.Seq) bool { return had < at && at <= seq })
	if seq <= k.upTo && !evicted {
		return false
	}
	all, err := s.frames.All(ctx, id)
	if err != nil {
		s.failed(id, err)
		return false
	}
	for i := range all {
		s.add(id, k, &all[i])
	}
	k.upTo = max(k.upTo, seq)
	return len(all) > 0
}

func (s *stored) add(id process.ID, k *known, f *keyframe.Frame) {
	s.cache.add(id, f.Seq, f.Output, f.Data)
	k.add(f.Seq, f.Output)
}

func (k *known) add(seq process.Seq, output uint64) {
	if at, found := slices.BinarySearch(k.seqs, seq); !found {
		k.seqs = slices.Insert(k.seqs, at, seq)
	}
	k.output = max(k.output, output)
}

func (k *known) has(seq process.Seq) bool {
	_, found := slices.BinarySearch(k.seqs, seq)
	return found
}

// step stores the frame after the event that was folded last if one is due; before is the output before
// the event.
func (s *stored) step(ctx context.Context, f *folded, before uint64) {
	if !f.keep || f.output == before || s.paused() {
		return
	}
	k := s.of(f.id)
	if n := f.output / keyframe.Every; n > before/keyframe.Every && !k.has(f.seq) {
		s.put(ctx, k, f, func(ctx context.Context, fr *keyframe.Frame) error { return s.frames.Put(ctx, f.id, n, fr) })
	}
	if f.output >= k.output+lastEvery {
		s.putLast(ctx, k, f)
	}
}

// end stores the frame after the last event of a record.
func (s *stored) end(ctx context.Context, f *folded) {
	if f.keep && f.output >= lastEvery && !s.paused() {
		if k := s.of(f.id); f.output >= k.output+endEvery {
			s.putLast(ctx, k, f)
		}
	}
}

func (s *stored) putLast(ctx context.Context, k *known, f *folded) {
	s.put(ctx, k, f, func(ctx context.Context, fr *keyframe.Frame) error { return s.frames.PutLast(ctx, f.id, fr) })
	k.output = f.output
}

func (s *stored) put(ctx context.Context, k *known, f *folded, put func(context.Context, *keyframe.Frame) error) {
	data, err := packed(f.screen)
	if err == nil {
		ctx, cancel := context.WithTimeout(ctx, frameReply)
		defer cancel()
		err = put(ctx, &keyframe.Frame{Seq: f.seq, Time: f.when, Output: f.output, Data: data})
	}
	if err != nil {
		s.failed(f.id, err)
		return
	}
	s.cache.add(f.id, f.seq, f.output, data)
	k.add(f.seq, 0)
}
