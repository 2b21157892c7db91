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
	data []byte
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

// put adds a key frame.
func (c *cache) put(id process.ID, seq process.Seq, s *screen.Screen) error {
	raw, err := s.Append(nil)
	if err != nil {
		return err
	}
	data := s2.Encode(nil, raw)
	c.mu.Lock()
	defer c.mu.Unlock()
	all := c.byID[id]
	at, found := slices.BinarySearchFunc(all, seq, bySeq)
	if found {
		c.byUse.MoveToFront(all[at])
		return nil
	}
	data = slices.Clip(slices.Clone(data))
	c.byID[id] = slices.Insert(all, at, c.byUse.PushFront(&keyFrame{id, seq, data}))
	c.free -= len(data) + frameCost
	for c.free < 0 && c.byUse.Len() > 0 {
		c.remove(c.byUse.Back())
	}
	return nil
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

// get returns the last key frame at or before seq; nil if there is none.
func (c *cache) get(id process.ID, seq process.Seq) (*screen.Screen, process.Seq) {
	c.mu.Lock()
	all := c.byID[id]
	at, found := slices.BinarySearchFunc(all, seq, bySeq)
	if !found {
		at--
	}
	if at < 0 {
		c.mu.Unlock()
		return nil, 0
	}
	f := frameIn(all[at])
	c.byUse.MoveToFront(all[at])
	c.mu.Unlock()
	raw, err := s2.Decode(nil, f.data)
	if err != nil {
		return nil, 0
	}
	s, err := screen.Parse(raw)
	if err != nil {
		return nil, 0
	}
	return s, f.seq
}
