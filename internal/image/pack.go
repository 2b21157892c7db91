package image

import (
	"archive/tar"
	"context"
	"io"
	"time"

	"github.com/millrace/millrace/events/template"
	"github.com/millrace/millrace/internal/part"
)

// Image is the source of a template: layers, the lowest first, and facts.
type Image struct {
	Layers []Layer
	Facts
}

// Sink receives the parts of a template in order. It may keep the bytes.
type Sink func(ctx context.Context, sum template.Sum, part []byte) error

// Options holds the options of Pack.
type Options struct {
	MaxSize  int64                          // maximum unpacked size of the layers in bytes; default 16 GiB
	Files    map[string]string              // files to write by path; those in a bin directory are executable; an empty body removes
	Progress func(what string, n, of int64) // receives progress in bytes; of is 0 if the total is unknown; may be nil
}

const defaultMaxSize = 16 << 30

// Pack converts an image to a template, passes its parts to sink and returns the encoded
// manifest. It reads each layer twice, and a third time the layer of account files behind
// links. It returns Invalid if the image cannot be a template.
func Pack(ctx context.Context, img *Image, opt Options, sink Sink) ([]byte, template.ID, error) {
	if opt.MaxSize <= 0 || opt.MaxSize > template.MaxTar {
		opt.MaxSize = defaultMaxSize
	}
	if opt.Progress == nil {
		opt.Progress = func(string, int64, int64) {}
	}
	t, err := readTree(ctx, img, &opt)
	if err != nil {
		return nil, "", err
	}
	if err := t.overwrite(opt.Files); err != nil {
		return nil, "", err
	}
	if err := t.loadAccounts(ctx, img.Layers, opt.MaxSize); err != nil {
		return nil, "", err
	}
	if err := t.fit(&img.Facts); err != nil {
		return nil, "", err
	}
	w := &writer{ctx: ctx, sink: sink}
	w.tar = tar.NewWriter(&w.parts)
	w.parts.Flush = w.part
	if err := w.tree(t, img.Layers, &opt); err != nil {
		return nil, "", err
	}
	m := template.Manifest{
		Arch: img.Arch, Env: img.Env, Workdir: img.Workdir, User: img.User, Start: img.Start, Services: img.Services, Sudo: img.Sudo,
		Files: w.files, Size: w.size, Tar: w.parts.N, Parts: w.sums,
	}
	return m.Encode()
}

// readTree merges the layers.
func readTree(ctx context.Context, img *Image, opt *Options) (*tree, error) {
	t, left := newTree(opt.MaxSize), opt.MaxSize
	for i := range img.Layers {
		err := img.Layers[i].read(ctx, &left, func(at int, h *tar.Header, body io.Reader) error {
			opt.Progress("read", opt.MaxSize-left, 0)
			// Layer numbers start at 1: 0 is for added files.
			return t.apply(entry{i + 1, at}, h, body)
		})
		if err != nil {
			return nil, err
		}
	}
	return t, nil
}

// writer writes a tree as its tar, in parts.
type writer struct {
	// a writer exists for one call
	ctx   context.Context
	sink  Sink
	tar   *tar.Writer
	parts part.Cutter
	sums  []template.Sum
	files int64
	size  int64
}

// tree writes directories, then files in the order of the layers, then symbolic and hard
// links.
func (w *writer) tree(t *tree, layers []Layer, opt *Options) error {
	type named struct {
		path string
		node *node
	}
	var later []named
	bodies := make([]map[int]*inode, len(layers)+1) // by layer and index
	var total int64
	err := t.root.walkSorted("", func(p string, n *node) error {
		w.files++
		if n.dir {
			return w.header(tar.TypeDir, p+"/", "", n.inode)
		}
		if err := t.account(len(p)); err != nil {
			return err
		}
		switch {
		case n.link || n.path != "":
			later = append(later, named{p, n})
			return nil
		case n.inMemory:
			n.path = p
			return w.file(n.inode, nil)
		}
		n.path = p
		total += n.size
		at := n.inode.layer // the file's layer, not the name's
		if bodies[at] == nil {
			bodies[at] = map[int]*inode{}
		}
		bodies[at][n.at] = n.inode
		return nil
	})
	if err != nil {
		return err
	}
	for i, wanted := range bodies {
		if len(wanted) == 0 {
			continue
		}
		left := opt.MaxSize
		err := layers[i-1].read(w.ctx, &left, func(at int, _ *tar.Header, body io.Reader) error {
			if f := wanted[at]; f != nil {
				opt.Progress("pack", w.size, total)
				return w.file(f, body)
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	for _, l := range later {
		flag, to := byte(tar.TypeLink), l.node.path
		if l.node.link {
			flag, to = tar.TypeSymlink, l.node.target
		}
		if err := w.header(flag, l.path, to, l.node.inode); err != nil {
			return err
		}
	}
	if err := w.tar.Close(); err != nil {
		return err
	}
	return w.parts.End()
}

func (w *writer) header(flag byte, name, link string, f *inode) error {
	h := tar.Header{
		Typeflag: flag, Name: name, Linkname: link, Mode: f.mode, Uid: f.uid, Gid: f.gid, ModTime: time.Unix(f.mtime, 0),
	}
	if flag == tar.TypeReg {
		h.Size = f.size
	}
	return w.tar.WriteHeader(&h)
}

func (w *writer) file(f *inode, body io.Reader) error {
	if err := w.header(tar.TypeReg, f.path, "", f); err != nil {
		return err
	}
	w.size += f.size
	if f.inMemory {
		_, err := w.tar.Write(f.body)
		return err
	}
	if n, err := io.Copy(w.tar, body); err != nil || n != f.size {
		if err == nil {
			err = invalid("%q changed while it was read", f.path)
		}
		return err
	}
	return nil
}

// part passes a part to the sink.
func (w *writer) part(b []byte) error {
	sum := template.SumOf(b)
	w.sums = append(w.sums, sum)
	return w.sink(w.ctx, sum, b)
}
