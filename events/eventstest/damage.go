package eventstest

import (
	"os"
	"path/filepath"
)

// Damage is one kind of disk damage to a block of a stream.
type Damage struct {
	Name string
	do   func(path string, data []byte) error
}

// Tail is the name of the damage that can hit the end of a record alone.
const Tail = "bits flipped at the tail"

// Damages returns every kind of damage that tests use.
func Damages() []Damage {
	flip := func(at func(size int) int) func(string, []byte) error {
		return func(path string, data []byte) error {
			for i := range 3 {
				data[(at(len(data))+i*97)%len(data)] ^= 0x10
			}
			return os.WriteFile(path, data, 0o600)
		}
	}
	return []Damage{
		{"bits flipped at the head", flip(func(int) int { return 40 })},
		{"bits flipped in the middle", flip(func(size int) int { return size / 2 })},
		{Tail, flip(func(size int) int { return size - 260 })},
		{"a third cut off", func(path string, data []byte) error { return os.WriteFile(path, data[:len(data)-len(data)/3], 0o600) }},
		{"a third of zeros", func(path string, data []byte) error {
			clear(data[len(data)-len(data)/3:])
			return os.WriteFile(path, data, 0o600)
		}},
		{"no file", func(path string, _ []byte) error { return os.Remove(path) }},
	}
}

// Damage stops the server without saving the state of a clean stop, as a kill does, and
// damages the last block of a stream. Resume restarts it.
func (s *Server) Damage(stream string, d Damage) {
	s.t.Helper()
	s.Stop()
	s.forgetState(stream)
	s.damage(stream, d)
}

// DamageUnseen is Damage after a clean stop: the server does not read the block when it starts.
func (s *Server) DamageUnseen(stream string, d Damage) {
	s.t.Helper()
	s.Stop()
	s.damage(stream, d)
}

// forgetState removes the state that a clean stop saves.
func (s *Server) forgetState(stream string) {
	s.t.Helper()
	states, err := filepath.Glob(filepath.Join(s.dir, "jetstream", "*", "streams", stream, "msgs", "index.db"))
	if err != nil {
		s.t.Fatal(err)
	}
	for _, state := range states {
		if err := os.Remove(state); err != nil {
			s.t.Fatal(err)
		}
	}
}

func (s *Server) damage(stream string, d Damage) {
	s.t.Helper()
	msgs := filepath.Join(s.dir, "jetstream", "*", "streams", stream, "msgs")
	blocks, err := filepath.Glob(filepath.Join(msgs, "*.blk"))
	if err != nil || len(blocks) == 0 {
		s.t.Fatalf("blocks of %s: %v, %v", stream, blocks, err)
	}
	var path string
	var data []byte
	for _, b := range blocks { // the newest has the longest name, and is the last of those
		if got, err := os.ReadFile(b); err == nil && len(got) > 0 && (len(b) > len(path) || len(b) == len(path) && b > path) {
			path, data = b, got
		}
	}
	if path == "" {
		s.t.Fatalf("stream %s has no block with data", stream)
	}
	if err := d.do(path, data); err != nil {
		s.t.Fatal(err)
	}
}
