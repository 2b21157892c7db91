package main

import (
	"archive/tar"
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// image writes an OCI layout with an image for each platform, as one file.
func (r *release) image(ctx context.Context) error {
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for _, p := range r.platforms {
		platform, err := v1.ParsePlatform(p)
		if err != nil {
			return err
		}
		img, err := r.imageOf(ctx, *platform)
		if err != nil {
			return fmt.Errorf("%s: %w", p, err)
		}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{Add: img, Descriptor: v1.Descriptor{
			Platform: platform, Annotations: map[string]string{"org.opencontainers.image.ref.name": r.version},
		}})
	}
	dir, err := os.MkdirTemp("", "millrace-image-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if _, err := layout.Write(dir, index); err != nil {
		return err
	}
	out, err := os.Create(filepath.Join(r.out, "millrace-"+r.version+"-image.tar"))
	if err != nil {
		return err
	}
	defer out.Close()
	if err := writeTree(out, dir, "", r.time); err != nil {
		return err
	}
	return out.Close()
}

// imageOf is the image of one platform: the base, and a layer with the programs.
func (r *release) imageOf(ctx context.Context, p v1.Platform) (v1.Image, error) {
	base, err := r.baseOf(ctx, p)
	if err != nil {
		return nil, err
	}
	var tree bytes.Buffer
	if err := r.layer(&tree, p.String()); err != nil {
		return nil, err
	}
	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(tree.Bytes())), nil
	})
	if err != nil {
		return nil, err
	}
	img, err := mutate.Append(base, mutate.Addendum{Layer: layer, History: v1.History{CreatedBy: "release", Created: v1.Time{Time: r.time}}})
	if err != nil {
		return nil, err
	}
	file, err := img.ConfigFile()
	if err != nil {
		return nil, err
	}
	file = file.DeepCopy()
	file.OS, file.Architecture, file.Variant, file.Created = p.OS, p.Architecture, p.Variant, v1.Time{Time: r.time}
	file.Config = config(file.Config, r.version)
	return mutate.ConfigFile(img, file)
}

// config is what the Dockerfile sets. The master key seals the secrets in the data directory
// and lies outside of it: both volumes must be kept.
func config(c v1.Config, version string) v1.Config {
	if c.Env == nil {
		c.Env = []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}
	}
	c.Env = append(c.Env, "MILLRACE_DATA=/var/lib/millrace", "MILLRACE_MASTER_KEY=/etc/millrace/master.key")
	c.Volumes = map[string]struct{}{"/var/lib/millrace": {}, "/etc/millrace": {}}
	c.ExposedPorts = map[string]struct{}{"7300/tcp": {}}
	c.StopSignal = "SIGTERM"
	c.Entrypoint, c.Cmd = []string{"millrace"}, []string{"up", "--listen", "0.0.0.0:7300"}
	c.Labels = map[string]string{"org.opencontainers.image.title": "Millrace", "org.opencontainers.image.version": version}
	return c
}

// layer writes the programs of a platform, and the directories of the volumes.
func (r *release) layer(w io.Writer, platform string) error {
	var programs bytes.Buffer
	if err := writeTree(&programs, filepath.Join(r.dir(platform), "bin"), "usr/local/bin", r.time); err != nil {
		return err
	}
	t := tar.NewWriter(w)
	for _, dir := range []struct {
		name string
		mode int64
	}{{"etc/", 0o755}, {"etc/millrace/", 0o700}, {"tmp/", 0o1777}, {"usr/", 0o755}, {"usr/local/", 0o755}, {"var/", 0o755}, {"var/lib/", 0o755}, {"var/lib/millrace/", 0o700}} {
		if err := t.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: dir.name, Mode: dir.mode, ModTime: r.time}); err != nil {
			return err
		}
	}
	in := tar.NewReader(&programs)
	for {
		h, err := in.Next()
		if err == io.EOF {
			return t.Close()
		}
		if err != nil {
			return err
		}
		if err := t.WriteHeader(h); err != nil {
			return err
		}
		if _, err := io.Copy(t, in); err != nil {
			return err
		}
	}
}

// baseOf returns the base for a platform: an image of a registry, the first image of a layout,
// or nothing for scratch.
func (r *release) baseOf(ctx context.Context, p v1.Platform) (v1.Image, error) {
	if r.base == "scratch" {
		return mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON), nil
	}
	if strings.ContainsRune(r.base, os.PathSeparator) && isDir(r.base) {
		index, err := layout.ImageIndexFromPath(r.base)
		if err != nil {
			return nil, err
		}
		return ofPlatform(index, p)
	}
	ref, err := name.ParseReference(r.base)
	if err != nil {
		return nil, err
	}
	return remote.Image(ref, remote.WithContext(ctx), remote.WithPlatform(p))
}

// ofPlatform returns the image of a platform, or the only one.
func ofPlatform(index v1.ImageIndex, p v1.Platform) (v1.Image, error) {
	m, err := index.IndexManifest()
	if err != nil {
		return nil, err
	}
	for _, d := range m.Manifests {
		if d.MediaType.IsImage() && (len(m.Manifests) == 1 || d.Platform != nil && d.Platform.Satisfies(p)) {
			return index.Image(d.Digest)
		}
	}
	return nil, fmt.Errorf("the base has no image for %s", p)
}

func isDir(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}
