package templates

import (
	"archive/tar"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/template"
	"github.com/millrace/millrace/internal/part"
	"github.com/millrace/millrace/services/hostd/internal/rmtree"
)

const (
	fetchAtOnce = 4
	perFile     = 4 << 10  // bytes of a disk for each entry besides its content
	headroom    = 64 << 20 // bytes that are left free
)

// fill makes a template's tree: all of it, or nothing that could be mistaken for one. Its
// parts have a directory of their own, which other fills leave alone, and which is kept
// only if a later fill can continue with them.
func (c *Cache) fill(ctx context.Context, id template.ID, m *template.Manifest, manifest []byte) error {
	parts := c.partsOf(id)
	err := c.fillFrom(ctx, parts, id, m, manifest)
	if errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) {
		err = full(id, err, "the host's disk is full")
	}
	if err == nil || ctx.Err() == nil && !kind.Is(err, kind.Unavailable) {
		c.remove(parts)
	}
	return err
}

func (c *Cache) partsOf(id template.ID) string {
	return filepath.Join(c.cfg.Dir, partsName, string(id))
}

func (c *Cache) fillFrom(ctx context.Context, parts string, id template.ID, m *template.Manifest, manifest []byte) error {
	if err := os.MkdirAll(parts, 0o700); err != nil {
		return err
	}
	need := needs(parts, m)
	if !c.free().fits(need) {
		c.sweepParts(0)
	}
	c.evict(need)
	if free := c.free(); !free.fits(need) {
		return full(id, nil, "the host's disk has %d MiB and %d files free, the template needs %d and %d",
			free.bytes>>20, free.files, need.bytes>>20, need.files)
	}
	if err := c.fetch(ctx, parts, m); err != nil {
		return err
	}
	return c.unpack(ctx, parts, id, m, manifest)
}

// diskSize returns how many bytes of a disk a tree occupies, empty files included.
func diskSize(m *template.Manifest) int64 { return m.Size + m.Files*perFile }

// needs returns the disk space that filling a template still needs. The parts are
// packed, to half their contents' size or less; those already on the disk need no more.
func needs(parts string, m *template.Manifest) space {
	return space{bytes: diskSize(m) + m.Tar/2 - min(m.Tar/2, fetchedBytes(parts)) + headroom, files: m.Files}
}

// fetchedBytes returns the size of the parts that an earlier fill left.
func fetchedBytes(parts string) (n int64) {
	entries, _ := os.ReadDir(parts)
	for _, e := range entries {
		if fi, err := e.Info(); err == nil && !strings.HasPrefix(e.Name(), newPrefix) {
			n += fi.Size()
		}
	}
	return n
}

func full(id template.ID, err error, format string, args ...any) error {
	e := kind.Newf(kind.Exhausted, "get template", string(id), format, args...)
	return errors.Join(e, err)
}

// fetch writes all parts to the disk, each as it was packed and checked.
func (c *Cache) fetch(ctx context.Context, parts string, m *template.Manifest) error {
	g, ctx := errgroup.WithContext(ctx)
	next := make(chan int)
	g.Go(func() error {
		defer close(next)
		for i := range m.Parts {
			select {
			case next <- i:
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		return nil
	})
	for range fetchAtOnce {
		g.Go(func() error {
			p, err := part.New()
			if err != nil {
				return err
			}
			defer p.Close()
			for i := range next {
				if err := c.fetchPart(ctx, p, parts, m, i); err != nil {
					return err
				}
			}
			return nil
		})
	}
	return g.Wait()
}

func (c *Cache) fetchPart(ctx context.Context, p *part.Packer, parts string, m *template.Manifest, i int) error {
	sum, source := m.Parts[i], c.cfg.Source
	if m.Exact {
		source = c.cfg.Copies
	}
	file := filepath.Join(parts, string(sum))
	if _, err := os.Stat(file); err == nil {
		return nil // it is checked again when it is used
	}
	packed, err := source.Part(ctx, sum)
	if err != nil {
		return err
	}
	if _, err := p.Unpack(packed, sum, m.Part(i)); err != nil {
		return err
	}
	tmp, err := os.CreateTemp(parts, newPrefix) // a template may contain a part twice
	if err != nil {
		return err
	}
	defer os.Remove(tmp.Name())
	_, err = tmp.Write(packed)
	if err = errors.Join(err, tmp.Close()); err != nil {
		return err
	}
	return os.Rename(tmp.Name(), file)
}

// unpack fills a directory beside the tree and renames it when complete.
func (c *Cache) unpack(ctx context.Context, parts string, id template.ID, m *template.Manifest, manifest []byte) error {
	dir, err := os.MkdirTemp(c.cfg.Dir, newPrefix)
	if err != nil {
		return err
	}
	defer rmtree.Tree(dir) //nolint:errcheck // after success it does not exist; otherwise the next run tries again
	r, err := newReader(ctx, parts, m)
	if err != nil {
		return err
	}
	defer r.packer.Close()
	if err := fillTree(filepath.Join(dir, treeName), tar.NewReader(r), m); err != nil {
		return err
	}
	if _, err := io.Copy(io.Discard, r); err != nil { // the checksums include the end of the archive
		return err
	}
	if m.Sudo && !m.Exact && c.cfg.Sudo != nil {
		program, err := c.cfg.Sudo(ctx)
		if err == nil {
			err = addSudo(filepath.Join(dir, treeName), program)
		}
		if err != nil {
			return err
		}
	}
	if err := os.WriteFile(filepath.Join(dir, manifestName), manifest, 0o600); err != nil {
		return err
	}
	if err := Sync(dir); err != nil {
		return err
	}
	return os.Rename(dir, filepath.Join(c.cfg.Dir, string(id)))
}

// reader reads a template's tar from its parts.
type reader struct {
	// a reader exists for one call
	ctx    context.Context
	parts  string
	m      *template.Manifest
	packer *part.Packer
	next   int
	left   []byte
}

func newReader(ctx context.Context, parts string, m *template.Manifest) (*reader, error) {
	p, err := part.New()
	if err != nil {
		return nil, err
	}
	return &reader{ctx: ctx, parts: parts, m: m, packer: p}, nil
}

func (r *reader) Read(p []byte) (int, error) {
	for len(r.left) == 0 {
		if r.next == len(r.m.Parts) {
			return 0, io.EOF
		}
		if err := r.ctx.Err(); err != nil {
			return 0, err
		}
		sum := r.m.Parts[r.next]
		packed, err := os.ReadFile(filepath.Join(r.parts, string(sum)))
		if err == nil {
			r.left, err = r.packer.Unpack(packed, sum, r.m.Part(r.next))
		}
		if err != nil {
			return 0, err
		}
		r.next++
	}
	n := copy(p, r.left)
	r.left = r.left[n:]
	return n, nil
}
