package backup

import (
	"encoding/json"
	"io"

	"github.com/klauspost/compress/s2"
	"github.com/nats-io/nats-server/v2/server/archive"
)

// state is the state of a stream at the beginning of the servers' own archive.
type state struct {
	Msgs     uint64 `json:"messages"`
	Bytes    uint64 `json:"bytes"`
	FirstSeq uint64 `json:"first_seq"`
	LastSeq  uint64 `json:"last_seq"`
}

// A composer makes the archive of one stream from the parts of a backup.
type composer struct {
	dir   string
	key   *Key
	s     *Stream
	state state

	live map[string]uint64 // messages of a subject until Stream.LiveUntil; nil: all
	have map[string]uint64 // messages of a subject until then in the parts that were not composed yet
}

// newComposer reads which messages count.
func newComposer(dir string, s *Stream, k *Key) (*composer, error) {
	c := &composer{dir: dir, key: k, s: s, state: state{LastSeq: s.LastSeq}}
	if s.Live != nil {
		c.live, c.have = make(map[string]uint64), make(map[string]uint64)
		err := each(dir, s.Live, k, func(h *archive.Header, _ io.Reader) error {
			c.live[h.Name] = h.Sequence
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	for _, p := range s.Parts {
		c.state.Bytes += p.Payload
		if s.Live == nil {
			continue
		}
		err := each(dir, &p, k, func(h *archive.Header, _ io.Reader) error {
			if h.Sequence <= s.LiveUntil {
				c.have[h.Name]++
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	// An empty stream begins behind its last sequence. Messages that were removed at the
	// beginning leave a gap, which the servers skip.
	c.state.FirstSeq = max(s.FirstSeq, 1)
	if c.state.FirstSeq <= s.LastSeq {
		c.state.Msgs = min(s.Messages, s.LastSeq-c.state.FirstSeq+1)
	}
	return c, nil
}

// counts reports whether a message is still in the stream. Of a subject, the newest remain.
func (c *composer) counts(h *archive.Header) bool {
	if c.live == nil || h.Sequence > c.s.LiveUntil {
		return h.Sequence >= c.s.FirstSeq
	}
	left := c.have[h.Name]
	c.have[h.Name] = left - 1
	return left <= c.live[h.Name] && h.Sequence >= c.s.FirstSeq
}

// writeTo writes the archive.
func (c *composer) writeTo(w io.Writer) error {
	pack := s2.NewWriter(w)
	defer pack.Close()
	arc := archive.NewWriter(pack)
	text, err := json.Marshal(&c.state)
	if err != nil {
		return err
	}
	if err := arc.WriteHeader(&archive.Header{Name: "state.json", PayloadSize: int64(len(text))}); err != nil {
		return err
	}
	if _, err := arc.Write(text); err != nil {
		return err
	}
	buf := make([]byte, 256<<10)
	for _, p := range c.s.Parts {
		err := each(c.dir, &p, c.key, func(h *archive.Header, payload io.Reader) error {
			if !c.counts(h) {
				return nil
			}
			if err := arc.WriteHeader(h); err != nil {
				return err
			}
			if h.HeaderSize+h.PayloadSize == 0 {
				return nil
			}
			_, err := io.CopyBuffer(arc, payload, buf)
			return err
		})
		if err != nil {
			return err
		}
	}
	if err := arc.WriteHeader(&archive.Header{}); err != nil {
		return err
	}
	return pack.Close()
}
