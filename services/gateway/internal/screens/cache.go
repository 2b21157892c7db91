package screens

import (
	"container/list"
	"slices"
	"sync"

	"github.com/klauspost/compress/s2"

	"github.com/millrace/millrace/events/process"
	"github.com/millrace/millrace/services/gateway/internal/screen"
)

// defaultCache is the default size of a cache in bytes.
const defaultCache = 64 << 20

// frameCost is what a key frame takes in memory besides its bytes.
const frameCost = 256

// cache holds key frames, up to a number of bytes: the least recently used are removed.
type cache struct {
	mu    sync.Mutex
	free  int
	byUse list.List // of *keyFrame, the most recently used first
	byID  map[process.ID][]*list.Element
}

// keyFrame is the state of a screen after event seq.
type keyFrame struct {
	id   process.ID
	seq  process.Seq
	size uint64 // bytes of output before it
	data []byte // packed
}

func newCache(size int) *cache {
	return &cache{free: size, byID: make(map[process.ID][]*list.Element)}
}

func frameIn(e *list.Element) *keyFrame {
	return e.Value.(*keyFrame) //nolint:errcheck,forcetypeassert // only key frames are in the list
}

func bySeq(e *list.Element, seq process.Seq) int {
	switch f := frameIn(e); {
	case f.seq < seq:
		return -1
	case f.seq > seq:
		return 1
	}
	return 0
}

// packed returns the state of a screen, compressed.
func packed(s *screen.Screen) ([]byte, error) {
	raw, err := s.Append(nil)
	if err != nil {
		return nil, err
	}
	return s2.Encode(nil, raw), nil
}

// put adds a key frame.
func (c *cache) put(id process.ID, seq process.Seq, size uint64, s *screen.Screen) error {
	data, err := packed(s)
	if err == nil {
		c.add(id, seq, size, data)
	}
	return err
}

// add adds a key frame that was packed.
func (c *cache) add(id process.ID, seq process.Seq, size uint64, data []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	all := c.byID[id]
	at, found := slices.BinarySearchFunc(all, seq, bySeq)
	if found {
		c.byUse.MoveToFront(all[at])
		return
	}
	data = slices.Clip(slices.Clone(data))
	c.byID[id] = slices.Insert(all, at, c.byUse.PushFront(&keyFrame{id, seq, size, data}))
	c.free -= len(data) + frameCost
	for c.free < 0 && c.byUse.Len() > 0 {
		c.remove(c.byUse.Back())
	}
}

func (c *cache) remove(e *list.Element) {
	f := frameIn(e)
	c.byUse.Remove(e)
	c.free += len(f.data) + frameCost
	all := c.byID[f.id]
	if at, found := slices.BinarySearchFunc(all, f.seq, bySeq); found {
		all = slices.Delete(all, at, at+1)
	}
	if len(all) == 0 {
		delete(c.byID, f.id)
	} else {
		c.byID[f.id] = all
	}
}

// get returns the last key frame at or before seq, and the bytes of output before it; nil if there is none.
func (c *cache) get(id process.ID, seq process.Seq) (*screen.Screen, process.Seq, uint64) {
	c.mu.Lock()
	all := c.byID[id]
	at, found := slices.BinarySearchFunc(all, seq, bySeq)
	if !found {
		at--
	}
	if at < 0 {
		c.mu.Unlock()
		return nil, 0, 0
	}
	f := frameIn(all[at])
	c.byUse.MoveToFront(all[at])
	c.mu.Unlock()
	raw, err := s2.Decode(nil, f.data)
	if err != nil {
		return nil, 0, 0
	}
	s, err := screen.Parse(raw)
	if err != nil {
		return nil, 0, 0
	}
	return s, f.seq, f.size
}
