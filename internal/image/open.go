package image

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/cache"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"
	"github.com/google/go-containerregistry/pkg/v1/tarball"

	"github.com/millrace/millrace/events/kind"
)

const (
	maxLayers = 512
	maxIndex  = 4 << 20 // bytes of what an archive says about itself
	maxConfig = 4 << 20 // bytes of an image's configuration
)

// Open finds an image: in an OCI layout (a directory or a tar of one), in a tar
// that `docker save` wrote, in a tar of a root's files, or by reference in a
// registry, with the credentials that docker's configuration has for it. scratch
// is an empty directory for what must be kept until the image has been packed.
func Open(ctx context.Context, source, scratch string) (*Image, error) {
	fi, err := os.Stat(source)
	switch {
	case err == nil && fi.IsDir():
		return openLayout(source)
	case err == nil:
		return openArchive(ctx, source, scratch)
	case looksLikePath(source):
		return nil, err
	}
	return pull(ctx, source, scratch)
}

func looksLikePath(s string) bool {
	return strings.HasPrefix(s, "/") || strings.HasPrefix(s, ".") || strings.HasSuffix(s, ".tar")
}

func openLayout(dir string) (*Image, error) {
	index, err := layout.ImageIndexFromPath(dir)
	if err != nil {
		return nil, invalid("%s is no OCI layout: %s", dir, err)
	}
	img, err := choose(index, 0)
	if err != nil {
		return nil, err
	}
	return fromOCI(img)
}

// choose finds this machine's image in an index, which may hold indexes.
func choose(index v1.ImageIndex, depth int) (v1.Image, error) {
	const deepest = 4
	m, err := index.IndexManifest()
	if err != nil {
		return nil, invalid("its index: %s", err)
	}
	for _, d := range m.Manifests {
		switch {
		case d.MediaType.IsIndex() && depth < deepest:
			inner, err := index.ImageIndex(d.Digest)
			if err == nil {
				err = named(inner, d.Digest)
			}
			if err != nil {
				return nil, invalid("its index: %s", err)
			}
			if img, err := choose(inner, depth+1); err == nil {
				return img, nil
			}
		case d.MediaType.IsImage() && (d.Platform == nil || d.Platform.OS == "linux" && d.Platform.Architecture == runtime.GOARCH):
			img, err := index.Image(d.Digest)
			if err == nil {
				err = named(img, d.Digest)
			}
			if err != nil {
				return nil, invalid("its manifest: %s", err)
			}
			return img, nil
		}
	}
	return nil, invalid("it has no image for linux/%s", runtime.GOARCH)
}

// named fails for what has another digest than the one that it is named by, which the library
// does not see in a layout.
func named(what interface{ Digest() (v1.Hash, error) }, want v1.Hash) error {
	got, err := what.Digest()
	if err != nil {
		return err
	}
	return same(got, want)
}

func same(got, want v1.Hash) error {
	if got != want && got.Algorithm == want.Algorithm {
		return fmt.Errorf("its digest is %s, it is named by %s", got, want)
	}
	return nil
}

// openArchive tells what kind of tar a file is by the names in it.
func openArchive(ctx context.Context, file, scratch string) (*Image, error) {
	names, holes, err := topNames(ctx, file)
	if err != nil {
		return nil, err
	}
	switch {
	case names["manifest.json"] && holes: // its configuration is read into memory
		return nil, invalid("%s: its files have more bytes than it has", file)
	case names["manifest.json"]:
		img, err := tarball.ImageFromPath(file, nil)
		if err != nil {
			return nil, invalid("%s: %s", file, err)
		}
		return fromOCI(img)
	case names["index.json"]:
		if err := unpackLayout(ctx, file, scratch); err != nil {
			return nil, err
		}
		return openLayout(scratch)
	}
	return &Image{Layers: []Layer{{Open: func() (io.ReadCloser, error) { return os.Open(file) }}}, Facts: Facts{Arch: runtime.GOARCH}}, nil
}

// eachEntry calls f for what a tar on the disk holds.
func eachEntry(ctx context.Context, file string, f func(h *tar.Header, body io.Reader) error) error {
	r, err := os.Open(file)
	if err != nil {
		return err
	}
	defer r.Close() //nolint:errcheck // it was only read
	for t := tar.NewReader(r); ctx.Err() == nil; {
		h, err := t.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return invalid("%s is no tar: %s", file, err)
		}
		if err := f(h, t); err != nil {
			return err
		}
	}
	return ctx.Err()
}

// topNames gives what is at a tar's top, and whether its files have more bytes than it has.
func topNames(ctx context.Context, file string) (names map[string]bool, holes bool, err error) {
	fi, err := os.Stat(file)
	if err != nil {
		return nil, false, err
	}
	names, left := map[string]bool{}, fi.Size()
	err = eachEntry(ctx, file, func(h *tar.Header, _ io.Reader) error {
		if n := path.Clean(h.Name); !strings.Contains(n, "/") && len(names) < maxLayers {
			names[n] = true
		}
		if left >= 0 {
			left -= h.Size
		}
		return nil
	})
	return names, left < 0, err
}

// unpackLayout takes the files of an OCI layout, and no others, out of a tar.
func unpackLayout(ctx context.Context, file, to string) error {
	blobs := filepath.Join(to, "blobs", "sha256")
	if err := os.MkdirAll(blobs, 0o700); err != nil {
		return err
	}
	fi, err := os.Stat(file)
	if err != nil {
		return err
	}
	left := fi.Size() // of blobs, which are all in the archive
	return eachEntry(ctx, file, func(h *tar.Header, body io.Reader) error {
		name := path.Clean(h.Name)
		sum, blob := strings.CutPrefix(name, "blobs/sha256/")
		switch {
		case h.Typeflag != tar.TypeReg:
			return nil
		case blob && len(sum) == 64 && strings.Trim(sum, "0123456789abcdef") == "":
			if left -= h.Size; left < 0 { // a sparse one says that it has more than the archive
				return invalid("%s: its blobs have more bytes than it has", file)
			}
			name = filepath.Join(blobs, sum)
		case name == "index.json" || name == "oci-layout":
			name, body = filepath.Join(to, name), io.LimitReader(body, maxIndex)
		default:
			return nil
		}
		out, err := os.Create(name)
		if err != nil {
			return err
		}
		if _, err := io.Copy(out, body); err != nil {
			out.Close() //nolint:errcheck // it is not used
			return err
		}
		return out.Close()
	})
}

// pull reads an image from a registry. Its layers are kept in scratch, because
// they are read twice.
func pull(ctx context.Context, source, scratch string) (*Image, error) {
	img, _, err := Pull(ctx, source, Registry{Scratch: scratch})
	return img, err
}

// Registry says how an image is had from one.
type Registry struct {
	Scratch            string            // an empty directory for what must be kept until the image has been packed
	Username, Password string            // empty: what docker's configuration has
	Transport          http.RoundTripper // nil: the library's
}

// Pull finds an image by reference in a registry, and nowhere else, and tells its
// digest. Invalid for what is no reference, and for a manifest that is too long; NotFound for what is not there or may
// not be read. Reading a layer is Exhausted where the scratch's disk has no room.
func Pull(ctx context.Context, reference string, r Registry) (*Image, string, error) {
	ref, err := name.ParseReference(reference)
	if err != nil {
		return nil, "", invalid("%q is no image's name: %s", reference, err)
	}
	opts := []remote.Option{remote.WithContext(ctx), remote.WithPlatform(v1.Platform{OS: "linux", Architecture: runtime.GOARCH})}
	if r.Username != "" || r.Password != "" {
		opts = append(opts, remote.WithAuth(&authn.Basic{Username: r.Username, Password: r.Password}))
	} else if r.Transport == nil {
		opts = append(opts, remote.WithAuthFromKeychain(authn.DefaultKeychain))
	}
	if r.Transport == nil {
		r.Transport = remote.DefaultTransport
	}
	img, err := remote.Image(ref, append(opts, remote.WithTransport(brief{r.Transport}))...)
	if err != nil {
		return nil, "", pullError(reference, err)
	}
	digest, err := img.Digest()
	if err != nil {
		return nil, "", pullError(reference, err)
	}
	out, err := fromOCI(cache.Image(narrow{img}, cache.NewFilesystemCache(r.Scratch)))
	if err != nil {
		return nil, "", err
	}
	out.leaveRoom(r.Scratch)
	return out, digest.String(), nil
}

func pullError(reference string, err error) error {
	k := kind.Unavailable
	var refused *transport.Error
	if errors.As(err, &refused) && refused.StatusCode >= 400 && refused.StatusCode < 500 && refused.StatusCode != http.StatusTooManyRequests {
		k = kind.NotFound
	}
	if kind.Is(err, kind.Invalid) {
		k = kind.Invalid
	}
	return &kind.Error{Op: "pull", ID: reference, Kind: k, Err: err, Msg: fmt.Sprintf("image %q cannot be pulled: %s", reference, err)}
}

// fromOCI takes over an image's layers and configuration.
func fromOCI(img v1.Image) (*Image, error) {
	m, err := img.Manifest()
	if err != nil {
		return nil, invalid("its manifest: %s", err)
	}
	if m.Config.Size < 0 || m.Config.Size > maxConfig { // so much of it is read into memory
		return nil, invalid("its configuration has %d bytes, the most is %d", m.Config.Size, maxConfig)
	}
	layers, err := img.Layers()
	if err != nil {
		return nil, invalid("its layers: %s", err)
	}
	if len(layers) > maxLayers {
		return nil, invalid("it has %d layers, the most is %d", len(layers), maxLayers)
	}
	conf, err := img.ConfigFile()
	if err == nil {
		var sum v1.Hash
		if sum, err = img.ConfigName(); err == nil {
			err = same(sum, m.Config.Digest)
		}
	}
	if err != nil {
		return nil, invalid("its configuration: %s", err)
	}
	if n := len(conf.RootFS.DiffIDs); n != len(layers) {
		return nil, invalid("its configuration has the sums of %d layers, it has %d", n, len(layers))
	}
	if conf.OS != "" && conf.OS != "linux" {
		return nil, invalid("it is for %s", conf.OS)
	}
	out := &Image{Facts: factsOf(conf)}
	for i, l := range layers {
		sum := conf.RootFS.DiffIDs[i] // of a layout the library would give what the layer has
		if sum.Algorithm != "sha256" {
			return nil, invalid("a layer has no sum that is known: %s", sum)
		}
		out.Layers = append(out.Layers, Layer{Open: l.Uncompressed, Sum: sum.Hex})
	}
	return out, nil
}

func factsOf(conf *v1.ConfigFile) Facts {
	f := Facts{Arch: conf.Architecture, Env: map[string]string{}}
	if f.Arch == "" {
		f.Arch = runtime.GOARCH
	}
	for _, e := range conf.Config.Env {
		if k, v, ok := strings.Cut(e, "="); ok && k != "" {
			f.Env[k] = v
		}
	}
	// Who runs what is a choice of the image's; without one it is as clients of
	// E2B know it, and not root as of others.
	f.User, f.Group, _ = strings.Cut(conf.Config.User, ":")
	if dir := path.Clean("/" + conf.Config.WorkingDir); dir != "/" {
		f.Workdir = dir
	}
	f.Start = append(append([]string{}, conf.Config.Entrypoint...), conf.Config.Cmd...)
	return f
}
