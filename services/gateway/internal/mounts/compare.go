package mounts

import (
	"bytes"
	"context"
	"errors"
	"io"

	"golang.org/x/sync/errgroup"

	"github.com/millrace/millrace/events/file"
	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/workspace"
	"github.com/millrace/millrace/services/gateway/internal/core"
)

// compare reads the files that have to be compared. Those with the same bytes are known afterwards. The others
// are pulled: a restored sandbox has an old one of the same size.
func (ms *Mounts) compare(ctx context.Context, m *mount, p *plan, local, stored map[workspace.Path]state) error {
	result := make([]error, len(p.compare))
	g, reading := errgroup.WithContext(ctx)
	g.SetLimit(uploads)
	for i, name := range p.compare {
		g.Go(func() error {
			result[i] = ms.compareOne(reading, m, name, local[name])
			if errors.Is(result[i], errDiffers) || errors.Is(result[i], errChanging) || kind.Is(result[i], kind.NotFound) {
				return nil
			}
			return result[i]
		})
	}
	if err := g.Wait(); err != nil {
		return err
	}
	for i, name := range p.compare {
		switch err := result[i]; {
		case err == nil:
			m.base[name] = version{local[name], stored[name]}
		case errors.Is(err, errDiffers):
			p.pull = append(p.pull, name)
		}
	}
	return nil
}

// errDiffers reports that a file has other bytes in the workspace.
var errDiffers = errors.New("the file differs")

func (ms *Mounts) compareOne(ctx context.Context, m *mount, name workspace.Path, want state) error {
	return ms.with(ctx, m, &file.Request{Op: file.OpRead, Path: Dir + "/" + string(name)}, func(f *core.Files) error {
		if got, err := entryState(f); err != nil || !got.equal(want) {
			return errors.Join(err, errChanging)
		}
		if err := f.Part(file.Range{Length: -1}); err != nil {
			return err
		}
		src, err := ms.cfg.Store.Open(ctx, m.of, name)
		if err != nil {
			return err
		}
		defer src.Body.Close()
		return same(io.LimitReader(f, want.size), io.LimitReader(src.Body, want.size))
	})
}

// same returns errDiffers unless both readers have the same bytes.
func same(a, b io.Reader) error {
	var left, right [32 << 10]byte
	for ended := false; !ended; {
		n, errA := io.ReadFull(a, left[:])
		k, errB := io.ReadFull(b, right[:])
		if !bytes.Equal(left[:n], right[:k]) {
			return errDiffers
		}
		for _, err := range []error{errA, errB} {
			switch {
			case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
				ended = true
			case err != nil:
				return err
			}
		}
	}
	return nil
}
