package screen

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
)

// Version is the version of what Append returns and of what output does to a screen: a frame of another
// version cannot be used.
const Version = 1

// fixed is the part of a frame that has a fixed size.
type fixed struct {
	Modes   modes
	Scanner scanner
	Bufs    [2]fixedBuffer
}

type fixedBuffer struct {
	X, Y, Top, Bottom uint16
	Saved             place
}

var errFrame = errors.New("not a key frame")

// Append appends the state of s to dst.
func (s *Screen) Append(dst []byte) ([]byte, error) {
	f := fixed{Modes: s.modes, Scanner: s.seq.scanner}
	for i := range s.bufs {
		b := &s.bufs[i]
		f.Bufs[i] = fixedBuffer{uint16(b.x), uint16(b.y), uint16(b.top), uint16(b.bottom), b.saved}
	}
	dst, err := binary.Append(dst, binary.LittleEndian, &f)
	if err != nil {
		return nil, fmt.Errorf("encode screen: %w", err)
	}
	dst = appendBytes(dst, s.seq.str)
	dst = appendBytes(dst, []byte(s.title))
	for _, t := range s.tabs {
		dst = append(dst, byte(b2i(t)))
	}
	if len(s.clusters) > s.maxClusters() { // the screen has become smaller
		s.collect()
	}
	dst = binary.AppendUvarint(dst, uint64(len(s.clusters)))
	for _, c := range s.clusters {
		dst = appendBytes(dst, []byte(c))
	}
	for i := range s.bufs {
		for _, row := range s.bufs[i].rows {
			dst = appendRow(dst, row)
		}
	}
	return dst, nil
}

func b2i(b bool) int {
	if b {
		return 1
	}
	return 0
}

func appendBytes(dst, b []byte) []byte {
	dst = binary.AppendUvarint(dst, uint64(len(b)))
	return append(dst, b...)
}

const cellSize = 15

// appendRow appends the cells of a row up to the last that is not blank.
func appendRow(dst []byte, row []cell) []byte {
	end := len(row)
	for end > 0 && row[end-1] == blank {
		end--
	}
	dst = binary.AppendUvarint(dst, uint64(end))
	for i := range row[:end] {
		c := &row[i]
		dst = binary.LittleEndian.AppendUint32(dst, c.ch)
		dst = binary.LittleEndian.AppendUint32(dst, uint32(c.fg))
		dst = binary.LittleEndian.AppendUint32(dst, uint32(c.bg))
		dst = binary.LittleEndian.AppendUint16(dst, uint16(c.attr))
		dst = append(dst, c.width)
	}
	return dst
}

// Parse returns the screen that [Screen.Append] encoded.
func Parse(b []byte) (*Screen, error) {
	var f fixed
	n := binary.Size(&f)
	if len(b) < n {
		return nil, errFrame
	}
	if _, err := binary.Decode(b, binary.LittleEndian, &f); err != nil {
		return nil, fmt.Errorf("decode screen: %w", err)
	}
	if f.Modes.Cols == 0 || f.Modes.Cols > MaxCols || f.Modes.Rows == 0 || f.Modes.Rows > MaxRows {
		return nil, errFrame
	}
	s := &Screen{modes: f.Modes}
	s.seq.scanner = f.Scanner
	r := frameReader{b: b[n:]}
	s.seq.str = bytes.Clone(r.bytes())
	s.title = string(r.bytes())
	s.tabs = make([]bool, s.Cols)
	for i, v := range r.take(int(s.Cols)) {
		s.tabs[i] = v != 0
	}
	for range r.uint(uint64(s.maxClusters()) + 1) {
		s.clusters = append(s.clusters, string(r.bytes()))
	}
	for i := range s.bufs {
		o := &f.Bufs[i]
		s.bufs[i] = buffer{x: int(o.X), y: int(o.Y), top: int(o.Top), bottom: int(o.Bottom), saved: o.Saved, rows: newRows(int(s.Rows), int(s.Cols))}
		for _, row := range s.bufs[i].rows {
			r.row(row)
		}
	}
	if r.bad || len(r.b) > 0 {
		return nil, errFrame
	}
	return s, nil
}

// frameReader reads the parts of a frame. After the first error it returns zero values.
type frameReader struct {
	b   []byte
	bad bool
}

func (r *frameReader) take(n int) []byte {
	if n > len(r.b) {
		r.bad, r.b = true, nil
		return nil
	}
	out := r.b[:n]
	r.b = r.b[n:]
	return out
}

func (r *frameReader) uint(limit uint64) uint64 {
	v, n := binary.Uvarint(r.b)
	if n <= 0 || v > limit {
		r.bad, r.b = true, nil
		return 0
	}
	r.b = r.b[n:]
	return v
}

func (r *frameReader) bytes() []byte { return r.take(int(r.uint(maxString))) }

func (r *frameReader) row(row []cell) {
	n := int(r.uint(uint64(len(row))))
	raw := r.take(n * cellSize)
	for i := 0; (i+1)*cellSize <= len(raw); i++ {
		c := raw[i*cellSize:]
		row[i] = cell{
			binary.LittleEndian.Uint32(c), Color(binary.LittleEndian.Uint32(c[4:])), Color(binary.LittleEndian.Uint32(c[8:])),
			Attr(binary.LittleEndian.Uint16(c[12:])), c[14],
		}
	}
}
