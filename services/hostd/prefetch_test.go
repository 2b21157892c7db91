package hostd

import (
	"archive/tar"
	"bytes"
	"log/slog"
	"runtime"
	"slices"
	"testing"

	"github.com/millrace/millrace/events/template"
	"github.com/millrace/millrace/internal/part"
)

// failedPrefetch receives a value when a failed prefetch is logged.
type failedPrefetch chan struct{}

func (c failedPrefetch) Write(b []byte) (int, error) {
	if bytes.Contains(b, []byte("prefetch template failed")) {
		select {
		case c <- struct{}{}:
		default:
		}
	}
	return len(b), nil
}

// A template that is pushed again stores the parts that the store had lost: hosts that could not
// fetch it do.
func TestTemplatePushedAgainIsFetched(t *testing.T) {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	if err := w.WriteHeader(&tar.Header{Name: "etc/", Typeflag: tar.TypeDir, Mode: 0o755}); err != nil || w.Close() != nil {
		t.Fatal(err)
	}
	sum := template.SumOf(b.Bytes())
	m := template.Manifest{Arch: runtime.GOARCH, Files: 1, Tar: int64(b.Len()), Parts: []template.Sum{sum}}
	raw, id, err := m.Encode()
	if err != nil {
		t.Fatal(err)
	}
	r := newRig(t)
	failed := make(failedPrefetch, 1)
	r.cfg.Slog = slog.New(slog.NewTextHandler(failed, nil))
	ref := template.Ref{Name: "made", Tag: "latest"}
	if err := r.log.TagTemplate(t.Context(), "t", ref, raw); err != nil {
		t.Fatal(err)
	}
	r.beginHere()
	<-failed
	p, err := part.New()
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	if err := r.log.PutPart(t.Context(), sum, p.Pack(b.Bytes())); err != nil {
		t.Fatal(err)
	}
	if err := r.log.TagTemplate(t.Context(), "t", ref, raw); err != nil {
		t.Fatal(err)
	}
	changed, stop := r.view.Changes()
	defer stop()
	for ctx := r.ctx(); ; {
		if h, ok := r.view.Host(r.cfg.Name); ok && slices.Contains(h.Templates, string(id)) {
			return
		}
		select {
		case <-changed:
		case <-ctx.Done():
			t.Fatal("no host fetched the template")
		}
	}
}
