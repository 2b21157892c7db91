package workspace

import (
	"context"
	"time"

	"github.com/millrace/millrace/events/internal/store"
	"github.com/millrace/millrace/events/internal/streams"
)

const (
	// Grace is how long the bytes of a file that was replaced or removed stay readable.
	Grace = 5 * time.Minute

	orphanAge  = time.Hour      // of bytes without an entry: those of uploads that were interrupted, and of retired ones of a gateway that died
	keepMarks  = 24 * time.Hour // of the messages that a file was removed; views that were disconnected longer would keep the file
	sweepBytes = time.Hour
)

// retired is an object whose entry was replaced.
type retired struct {
	object string
	at     time.Time
}

// retire removes an object after [Grace].
func (s *Store) retire(object string) {
	s.progress.Lock()
	defer s.progress.Unlock()
	s.retired = append(s.retired, retired{object, time.Now()})
}

// Run removes what is not needed any more until ctx ends.
func (s *Store) Run(ctx context.Context) error {
	tick := time.NewTicker(time.Minute)
	defer tick.Stop()
	swept := time.Now()
	for {
		select {
		case <-ctx.Done():
			return nil
		case now := <-tick.C:
			err := s.Sweep(ctx, now, now.Sub(swept) >= sweepBytes)
			if now.Sub(swept) >= sweepBytes {
				swept = now
			}
			if err != nil && ctx.Err() == nil {
				s.conn.Log().Warn("sweep workspaces failed", "err", err)
			}
		}
	}
}

// Sweep removes the bytes that were retired [Grace] before now, and marks of removed files. With
// orphans it also removes bytes without an entry.
func (s *Store) Sweep(ctx context.Context, now time.Time, orphans bool) error {
	if err := s.removeRetired(ctx, now); err != nil {
		return err
	}
	if err := s.removeMarks(ctx, now); err != nil {
		return store.Unavailable("sweep", streams.Workspaces, err)
	}
	if !orphans {
		return nil
	}
	_, err := s.bytes.Sweep(ctx, orphanAge, func(yield func(string)) error {
		if err := s.Sync(ctx); err != nil { // entries that were stored before their bytes were listed
			return err
		}
		s.progress.Lock()
		defer s.progress.Unlock()
		for _, of := range s.index.scopes {
			of.byPath.Scan(func(_ Path, f File) bool {
				yield(f.object)
				return true
			})
		}
		return nil
	})
	return err
}

func (s *Store) removeRetired(ctx context.Context, now time.Time) error {
	s.progress.Lock()
	all := s.retired
	s.progress.Unlock()
	n := 0
	var err error
	for ; n < len(all) && now.Sub(all[n].at) >= Grace && err == nil; n++ {
		err = s.bytes.Remove(ctx, all[n].object)
	}
	if err != nil {
		n-- // the last one is tried again
	}
	s.progress.Lock()
	defer s.progress.Unlock()
	s.retired = append([]retired(nil), s.retired[n:]...)
	return err
}

// removeMarks removes the messages of files that were removed, but for the last of the stream, which
// says how far views must read.
func (s *Store) removeMarks(ctx context.Context, now time.Time) error {
	old := make(map[string]removal)
	s.progress.Lock()
	for subject, r := range s.index.removed {
		if now.Sub(r.at) >= keepMarks {
			old[subject] = r
		}
	}
	s.progress.Unlock()
	if len(old) == 0 {
		return nil
	}
	end, err := s.conn.LastSeq(ctx, streams.Workspaces)
	if err != nil {
		return err
	}
	stream, err := s.conn.Stream(ctx, streams.Workspaces)
	if err != nil {
		return err
	}
	for subject, r := range old {
		if r.rev >= end {
			continue
		}
		if err := stream.Purge(ctx, subject, r.rev+1); err != nil {
			return err
		}
		s.progress.Lock()
		if s.index.removed[subject].rev == r.rev {
			delete(s.index.removed, subject)
		}
		s.progress.Unlock()
	}
	return nil
}
