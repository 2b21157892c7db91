package image

import (
	"archive/tar"
	"context"
	"io"
	"time"

	"github.com/millrace/millrace/events/template"
	"github.com/millrace/millrace/internal/part"
)

// Image is what a template is made from: layers, the lowest first.
type Image struct {
	Layers []Layer
	Facts
}

// Sink takes the parts of a template in order. The bytes are the sink's to keep.
type Sink func(ctx context.Context, sum template.Sum, part []byte) error

// Options bound and watch a Pack.
type Options struct {
	MaxSize  int64                          // bytes that the layers may unpack to; 0: 16 GiB
	Files    map[string]string              // written over the image's; what is in a bin can be executed; an empty one removes
	Progress func(what string, n, of int64) // of bytes; of is 0 where it is not known; may be nil
}

const defaultMaxSize = 16 << 30

// Pack makes a template of an image, hands its parts to sink and gives its
// manifest as it is stored. The layers are read twice, and
// one again that has the users behind a link. Invalid if the image
// cannot be a template.
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
		Arch: img.Arch, Env: img.Env, Workdir: img.Workdir, User: img.User, Start: img.Start, Sudo: img.Sudo,
		Files: w.files, Size: w.size, Tar: w.parts.N, Parts: w.sums,
	}
	return m.Encode()
}

// readTree puts the layers together.
func readTree(ctx context.Context, img *Image, opt *Options) (*tree, error) {
	t, left := newTree(opt.MaxSize), opt.MaxSize
	for i := range img.Layers {
		err := img.Layers[i].read(ctx, &left, func(at int, h *tar.Header, body io.Reader) error {
			opt.Progress("read", opt.MaxSize-left, 0)
			// Layers are counted from 1: what is made before them is of layer 0.
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
	//nolint:containedctx // a writer lives for one call
	ctx   context.Context
	sink  Sink
	tar   *tar.Writer
	parts part.Cutter
	sums  []template.Sum
	files int64
	size  int64
}

// tree writes directories, then files in the order in which the layers have
// them, then links and other names of files.
func (w *writer) tree(t *tree, layers []Layer, opt *Options) error {
	type named struct {
		path string
		node *node
	}
	var later []named
	bodies := make([]map[int]*inode, len(layers)+1) // by layer and place
	var total int64
	err := t.root.sorted("", func(p string, n *node) error {
		w.files++
		if n.dir {
			return w.header(tar.TypeDir, p+"/", "", n.inode)
		}
		if err := t.hold(len(p)); err != nil {
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
		at := n.inode.layer // not the name's
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
			err = invalid("%q has changed while it was read", f.path)
		}
		return err
	}
	return nil
}

// part hands a part to the sink.
func (w *writer) part(b []byte) error {
	sum := template.SumOf(b)
	w.sums = append(w.sums, sum)
	return w.sink(w.ctx, sum, b)
}
