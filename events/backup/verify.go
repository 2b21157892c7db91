package backup

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"

	"github.com/nats-io/nats-server/v2/server/archive"
)

// Report is the result of a verification.
type Report struct {
	Files    int    `json:"files"`
	Bytes    int64  `json:"bytes"`
	Messages uint64 `json:"messages"`
	Payload  uint64 `json:"payload"`
}

// Verify reads all files that the restore of a backup needs: their checksums, their seals, and the
// order of their messages.
func Verify(ctx context.Context, dir string, m *Manifest, k *Key) (*Report, error) {
	r := &Report{}
	for i := range m.Streams {
		s := &m.Streams[i]
		var last uint64
		for _, p := range s.Parts {
			err := checked(ctx, dir, &p, k, func(h *archive.Header) error {
				if h.Sequence <= last || h.Sequence > s.LastSeq {
					return fmt.Errorf("message %d follows message %d", h.Sequence, last)
				}
				last = h.Sequence
				return nil
			})
			if err != nil {
				return nil, err
			}
			r.add(&p)
		}
		if s.Live == nil {
			continue
		}
		if err := checked(ctx, dir, s.Live, k, func(*archive.Header) error { return nil }); err != nil {
			return nil, err
		}
		r.add(s.Live)
	}
	return r, nil
}

func (r *Report) add(p *Part) {
	r.Files++
	r.Bytes += p.Bytes
	r.Messages += p.Messages
	r.Payload += p.Payload
}

// checked compares a file with its checksum and calls do with each of its entries.
func checked(ctx context.Context, dir string, p *Part, k *Key, do func(*archive.Header) error) error {
	if err := checkSum(ctx, dir, p); err != nil {
		return err
	}
	return each(dir, p, k, func(h *archive.Header, _ io.Reader) error {
		if err := do(h); err != nil {
			return damaged(p.name(), err)
		}
		return ctx.Err()
	})
}

func checkSum(ctx context.Context, dir string, p *Part) error {
	f, err := openFile(dir, p)
	if err != nil {
		return err
	}
	defer f.Close()
	sum := sha256.New()
	if _, err := bufio.NewReaderSize(f, segmentSize).WriteTo(sum); err != nil {
		return err
	}
	if hex.EncodeToString(sum.Sum(nil)) != p.SHA256 {
		return damaged(p.name(), errors.New("its SHA-256 differs from the manifest"))
	}
	return ctx.Err()
}
