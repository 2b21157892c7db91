package screen

import (
	"fmt"
	"unicode/utf8"

	"github.com/mattn/go-runewidth"
)

// Attr is a set of attributes of a cell.
type Attr uint16

// Attributes.
const (
	Bold Attr = 1 << iota
	Faint
	Italic
	Underline
	Blink
	Inverse
	Hidden
	Strike
)

// Color is the color of a cell: default, one of 256, or any.
type Color uint32

const (
	indexed Color = 1 << 24
	direct  Color = 2 << 24
	kinds   Color = 3 << 24
)

// AppendJSON appends null, the number of an indexed color, or "#rrggbb".
func (c Color) AppendJSON(dst []byte) []byte {
	switch c & kinds {
	case indexed:
		return fmt.Appendf(dst, "%d", uint8(c))
	case direct:
		return fmt.Appendf(dst, `"#%06x"`, uint32(c)&0xFFFFFF)
	}
	return append(dst, "null"...)
}

// style is how text is shown.
type style struct {
	FG, BG Color
	Attr   Attr
}

// cell is one column of a row. The second column of a wide character has width 0.
type cell struct {
	ch    uint32 // character, or cluster | index into Screen.clusters; 0: empty
	fg    Color
	bg    Color
	attr  Attr
	width uint8
}

const (
	cluster    = 1 << 31
	maxCluster = 64 // bytes of a character with its combining marks; further marks are dropped
)

var blank = cell{width: 1}

func (s style) cell(ch uint32, width uint8) cell { return cell{ch, s.FG, s.BG, s.Attr, width} }

// erased returns the cell that an erasure leaves, which keeps the background.
func (s style) erased() cell { return cell{bg: s.BG, width: 1} }

var widths = runewidth.Condition{StrictEmojiNeutral: true}

// widthOf returns the number of columns of r: 0, 1 or 2. It is the width that programs expect,
// which call wcwidth for each character.
func widthOf(r rune) int {
	switch {
	case r < 0x300:
		return 1
	case r >= 0xFE00 && r <= 0xFE0F, r == 0x200D, r == 0x200B, r == 0x200C:
		return 0
	}
	return widths.RuneWidth(r)
}

// appendText appends the text of a cell.
func (s *Screen) appendText(dst []byte, c *cell) []byte {
	switch {
	case c.ch == 0:
		return append(dst, ' ')
	case c.ch&cluster != 0:
		return append(dst, s.clusters[c.ch&^cluster]...)
	}
	return utf8.AppendRune(dst, rune(c.ch))
}

// join adds a combining mark to a cell.
func (s *Screen) join(c *cell, r rune) {
	text := s.appendText(nil, c)
	if len(text)+utf8.RuneLen(r) > maxCluster {
		return
	}
	if len(s.clusters) >= s.maxClusters() {
		s.collect()
	}
	c.ch = cluster | uint32(len(s.clusters))
	s.clusters = append(s.clusters, string(utf8.AppendRune(text, r)))
}

// maxClusters is how many clusters the screen holds before it removes those that no cell has.
func (m *modes) maxClusters() int { return 64 + 4*int(m.Cols)*int(m.Rows) }

// collect removes the clusters that no cell has.
func (s *Screen) collect() {
	var kept []string
	for _, b := range s.bufs {
		for _, row := range b.rows {
			for x := range row {
				if c := &row[x]; c.ch&cluster != 0 {
					kept = append(kept, s.clusters[c.ch&^cluster])
					c.ch = cluster | uint32(len(kept)-1)
				}
			}
		}
	}
	s.clusters = kept
}
