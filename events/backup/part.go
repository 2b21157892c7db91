package backup

import (
	"bufio"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/klauspost/compress/s2"
	"github.com/nats-io/nats-server/v2/server/archive"
)

// A partWriter writes a file of messages: archive entries, packed with S2, sealed.
type partWriter struct {
	part Part
	f    *os.File
	sum  hash.Hash
	buf  *bufio.Writer
	seal io.WriteCloser
	pack *s2.Writer
	arc  *archive.Writer
}

func newPart(dir, backup, file string, k *Key) (*partWriter, error) {
	f, err := os.OpenFile(filepath.Join(dir, backup, file), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	w := &partWriter{part: Part{Backup: backup, File: file}, f: f, sum: sha256.New()}
	w.buf = bufio.NewWriterSize(io.MultiWriter(f, w.sum), segmentSize)
	if w.seal, err = k.seal(w.buf, w.part.name()); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	w.pack = s2.NewWriter(w.seal)
	w.arc = archive.NewWriter(w.pack)
	return w, nil
}

// add writes an entry. The payload is header followed by data.
func (w *partWriter) add(h *archive.Header, header, data []byte) error {
	h.HeaderSize, h.PayloadSize = int64(len(header)), int64(len(data))
	if err := w.arc.WriteHeader(h); err != nil {
		return err
	}
	for _, b := range [][]byte{header, data} {
		if _, err := w.arc.Write(b); err != nil {
			return err
		}
	}
	w.part.Messages++
	w.part.Payload += uint64(len(h.Name) + len(header) + len(data))
	return nil
}

// finish makes the file durable and returns its description.
func (w *partWriter) finish() (*Part, error) {
	err := errors.Join(w.arc.WriteHeader(&archive.Header{}), w.arc.Close(), w.pack.Close(), w.seal.Close(), w.buf.Flush(), w.f.Sync())
	if err != nil {
		return nil, errors.Join(err, w.f.Close())
	}
	st, err := w.f.Stat()
	if err := errors.Join(err, w.f.Close()); err != nil {
		return nil, err
	}
	w.part.Bytes, w.part.SHA256 = st.Size(), hex.EncodeToString(w.sum.Sum(nil))
	return &w.part, nil
}

// abandon closes the file of a backup that failed.
func (w *partWriter) abandon() { w.f.Close() }

// A partReader reads a file of messages.
type partReader struct {
	part Part
	f    *os.File
	arc  *archive.Reader
	n    uint64
}

func openPart(dir string, p *Part, k *Key) (*partReader, error) {
	f, err := openFile(dir, p)
	if err != nil {
		return nil, err
	}
	plain, err := k.open(bufio.NewReaderSize(f, segmentSize), p.name())
	if err != nil {
		return nil, errors.Join(damaged(p.name(), err), f.Close())
	}
	return &partReader{part: *p, f: f, arc: archive.NewReader(s2.NewReader(plain))}, nil
}

// openFile opens a file of a backup and compares its size.
func openFile(dir string, p *Part) (*os.File, error) {
	if !filepath.IsLocal(p.name()) {
		return nil, damaged(p.name(), errors.New("not a file of a backup"))
	}
	f, err := os.Open(filepath.Join(dir, p.Backup, p.File))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, missing(p.name())
	}
	if err != nil {
		return nil, err
	}
	st, err := f.Stat()
	if err == nil && st.Size() != p.Bytes {
		err = damaged(p.name(), fmt.Errorf("it has %d bytes instead of %d", st.Size(), p.Bytes))
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// next returns the next entry, whose payload is read from r.arc. It returns nil after the last one.
func (r *partReader) next() (*archive.Header, error) {
	h, err := r.arc.Next()
	if err != nil {
		return nil, damaged(r.part.name(), err)
	}
	if *h == (archive.Header{}) {
		if r.n != r.part.Messages {
			return nil, damaged(r.part.name(), fmt.Errorf("it has %d messages instead of %d", r.n, r.part.Messages))
		}
		// The end of the sealed data is authenticated, too.
		if _, err := r.arc.Next(); !errors.Is(err, io.EOF) {
			return nil, damaged(r.part.name(), errors.New("data after the end"))
		}
		return nil, nil //nolint:nilnil // the end
	}
	r.n++
	return h, nil
}

func (r *partReader) close() { r.f.Close() }

// each calls do with each entry of a file.
func each(dir string, p *Part, k *Key, do func(*archive.Header, io.Reader) error) error {
	r, err := openPart(dir, p, k)
	if err != nil {
		return err
	}
	defer r.close()
	for {
		h, err := r.next()
		if err != nil || h == nil {
			return err
		}
		if err := do(h, r.arc); err != nil {
			return err
		}
	}
}
