// Package screen folds the output of a terminal into its screen.
//
// # What a screen is
// A [Screen] is a function of the bytes and sizes that it was given, in order. How the bytes
// are split into writes makes no difference. It holds the visible rows of the normal and the
// alternate buffer; rows that scroll off the top are dropped, and a resize neither reflows
// lines nor brings rows back. Output of a process without a terminal has LF treated as CR LF.
//
// # Key frames
// [Screen.Append] encodes the whole state, including a partial escape sequence and a partial
// UTF-8 character, and [Parse] restores it. A fuzz test holds that a restored screen and the
// original are equal after any further output.
//
// # Bounds
// A screen has at most [MaxCols] by [MaxRows] cells; a larger size is reduced to that. The
// memory of a screen depends on its size only: titles, parameters, strings in escape sequences
// and combining marks are cut. A screen never sends replies, so that queries have no effect.
//
// # Which library
// The escape sequences are recognized by the transition table of
// github.com/charmbracelet/x/ansi/parser, and the width of a character is that of
// github.com/mattn/go-runewidth. The cells are our own code. Emulators that were tried:
//
//   - github.com/charmbracelet/x/vt v0.1.0 folds 4.6 MB/s of a colored log at 80 by 24, against
//     58 MB/s here, because each line feed copies every cell. An emulator holds
//     4.8 MB. Its state can neither be cloned nor encoded. The result depends on how output is
//     split: a combining mark at the beginning of a write is lost. ED 1 erases the whole line,
//     insert mode is missing, and a query blocks the writer until its reply is read.
//   - github.com/hinshun/vt10x has no wide characters and no combining marks, and its last
//     change was in 2022.
//
// In tests, @xterm/headless is the reference.
package screen
