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
	"github.com/millrace/millrace/events/template"
)

const (
	maxLayers = 512
	maxIndex  = 4 << 20 // maximum size in bytes of an archive's index
	maxConfig = 4 << 20 // maximum size in bytes of an image's configuration
)

// Open opens an image: an OCI layout (a directory or a tar of one), a tar from `docker
// save`, a tar of a root file system, or a reference to a registry, with the credentials
// of docker's configuration. scratch is an empty directory for files that are needed until
// the image is packed.
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
		return nil, invalid("%s is not an OCI layout: %s", dir, err)
	}
	img, err := choose(index, 0)
	if err != nil {
		return nil, err
	}
	return fromOCI(img)
}

// choose returns the image for this machine from an index, which may contain indexes.
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

// named checks that an object of a layout has the digest that refers to it. The library
// does not check that.
func named(what interface{ Digest() (v1.Hash, error) }, want v1.Hash) error {
	got, err := what.Digest()
	if err != nil {
		return err
	}
	return same(got, want)
}

func same(got, want v1.Hash) error {
	if got != want && got.Algorithm == want.Algorithm {
		return fmt.Errorf("its digest is %s, want %s", got, want)
	}
	return nil
}

// openArchive opens a tar; the names in it determine its kind.
func openArchive(ctx context.Context, file, scratch string) (*Image, error) {
	names, holes, err := topNames(ctx, file)
	if err != nil {
		return nil, err
	}
	switch {
	case names["manifest.json"] && holes: // the configuration would be read into memory
		return nil, invalid("%s: its files are larger than the archive", file)
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

// eachEntry calls f for each entry of a tar on the disk.
func eachEntry(ctx context.Context, file string, f func(h *tar.Header, body io.Reader) error) error {
	r, err := os.Open(file)
	if err != nil {
		return err
	}
	defer r.Close()
	for t := tar.NewReader(r); ctx.Err() == nil; {
		h, err := t.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return invalid("%s is not a tar: %s", file, err)
		}
		if err := f(h, t); err != nil {
			return err
		}
	}
	return ctx.Err()
}

// topNames returns the top-level names of a tar, and whether its files are larger than the
// archive.
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

// unpackLayout unpacks only the files of an OCI layout from a tar.
func unpackLayout(ctx context.Context, file, to string) error {
	blobs := filepath.Join(to, "blobs", "sha256")
	if err := os.MkdirAll(blobs, 0o700); err != nil {
		return err
	}
	fi, err := os.Stat(file)
	if err != nil {
		return err
	}
	left := fi.Size() // maximum total size of blobs
	return eachEntry(ctx, file, func(h *tar.Header, body io.Reader) error {
		name := path.Clean(h.Name)
		sum, blob := strings.CutPrefix(name, "blobs/sha256/")
		switch {
		case h.Typeflag != tar.TypeReg:
			return nil
		case blob && len(sum) == 64 && strings.Trim(sum, "0123456789abcdef") == "":
			if left -= h.Size; left < 0 { // a sparse file claims more than the archive has
				return invalid("%s: its blobs are larger than the archive", file)
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
			out.Close()
			return err
		}
		return out.Close()
	})
}

// pull reads an image from a registry. Its layers are cached in scratch, because they are
// read twice.
func pull(ctx context.Context, source, scratch string) (*Image, error) {
	img, _, err := Pull(ctx, source, Registry{Scratch: scratch})
	return img, err
}

// Registry holds the options of a pull.
type Registry struct {
	Scratch            string            // empty directory for files that are needed until the image is packed
	Username, Password string            // credentials; default those of docker's configuration
	Transport          http.RoundTripper // default the library's
}

// Pull opens an image in a registry and returns its digest. It returns Invalid for an
// invalid reference or a manifest that is too long, and NotFound for an image that does not
// exist or may not be read. Reading a layer returns Exhausted if the scratch disk is full.
func Pull(ctx context.Context, reference string, r Registry) (*Image, string, error) {
	ref, err := name.ParseReference(reference)
	if err != nil {
		return nil, "", invalid("%q is not a valid image name: %s", reference, err)
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
	img, err := remote.Image(ref, append(opts, remote.WithTransport(boundedManifests{r.Transport}))...)
	if err != nil {
		return nil, "", pullError(reference, err)
	}
	digest, err := img.Digest()
	if err != nil {
		return nil, "", pullError(reference, err)
	}
	out, err := fromOCI(cache.Image(boundedImage{img}, cache.NewFilesystemCache(r.Scratch)))
	if err != nil {
		return nil, "", err
	}
	out.limitDisk(r.Scratch)
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
	return &kind.Error{Op: "pull", ID: reference, Kind: k, Err: err, Msg: fmt.Sprintf("pull image %q: %s", reference, err)}
}

// fromOCI converts an OCI image.
func fromOCI(img v1.Image) (*Image, error) {
	m, err := img.Manifest()
	if err != nil {
		return nil, invalid("its manifest: %s", err)
	}
	if m.Config.Size < 0 || m.Config.Size > maxConfig { // it is read into memory
		return nil, invalid("its configuration has %d bytes, the maximum is %d", m.Config.Size, maxConfig)
	}
	layers, err := img.Layers()
	if err != nil {
		return nil, invalid("its layers: %s", err)
	}
	if len(layers) > maxLayers {
		return nil, invalid("it has %d layers, the maximum is %d", len(layers), maxLayers)
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
		return nil, invalid("its configuration has checksums of %d layers, want %d", n, len(layers))
	}
	if conf.OS != "" && conf.OS != "linux" {
		return nil, invalid("it is for %s", conf.OS)
	}
	services, err := servicesOf(conf.Config.Labels)
	if err != nil {
		return nil, err
	}
	out := &Image{Facts: factsOf(conf)}
	out.Services = services
	for i, l := range layers {
		sum := conf.RootFS.DiffIDs[i] // for a layout the library would return the actual checksum
		if sum.Algorithm != "sha256" {
			return nil, invalid("a layer's checksum has an unknown algorithm: %s", sum)
		}
		out.Layers = append(out.Layers, Layer{Open: l.Uncompressed, Sum: sum.Hex})
	}
	return out, nil
}

// Labels of images about their services.
const (
	labelServices = "ai.backend.service-ports" // the services, as Backend.AI's images list them
	labelStart    = "millrace.service."        // with a service's name: the shell command that starts it
)

// servicesOf returns the services that the labels of an image declare.
func servicesOf(labels map[string]string) ([]template.Service, error) {
	list := labels[labelServices]
	if list == "" {
		return nil, nil
	}
	services, err := template.ParseServicePorts(list)
	if err != nil {
		return nil, invalid("label %s: %s", labelServices, kind.Message(err))
	}
	for i := range services {
		services[i].Start = labels[labelStart+services[i].Name]
	}
	return services, nil
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
	// An image without a user gets the default user, as clients of E2B expect, and not
	// root as in Docker.
	f.User, f.Group, _ = strings.Cut(conf.Config.User, ":")
	if dir := path.Clean("/" + conf.Config.WorkingDir); dir != "/" {
		f.Workdir = dir
	}
	f.Start = append(append([]string{}, conf.Config.Entrypoint...), conf.Config.Cmd...)
	return f
}
