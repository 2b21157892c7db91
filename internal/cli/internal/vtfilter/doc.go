// Package vtfilter copies recorded terminal output to a terminal without the
// sequences that make a terminal send input.
//
// A program queries its terminal by printing a sequence such as CSI 6n, and the
// terminal types the answer. A recorded query that is shown again is answered
// again, and the answer reaches a program that never asked.
//
// # What passes
// The filter holds a list of what is safe, not a list of what is not: text, the
// C0 controls except ENQ, and the escape sequences that move the cursor, erase,
// scroll, style, switch modes, or set titles, colors and links. Everything else
// is left out: queries that are known today, queries of terminals to come,
// images, notifications, the clipboard. The modes that make a terminal report
// as soon as they are set (1004, 2031, 2048), and those that change how it reads
// what follows (VT52, Tektronix), are left out too.
//
// The output is valid UTF-8 without C1 controls, so that no terminal can read
// it in another way than the filter did. Bytes that are not UTF-8 become U+FFFD.
//
// # Where history ends
// Sequences may be split anywhere. A sequence that began in history and ends in
// live output is live: its first part is held back until then, and passes whole.
//
// # Why not a library
// A general parser reports what a sequence means and drops its bytes; here the
// bytes must go out unchanged, an unfinished sequence must be given back, and a
// doubt must end in leaving out. A fuzz test checks the output with the parser
// of charmbracelet/x/ansi.
package vtfilter
