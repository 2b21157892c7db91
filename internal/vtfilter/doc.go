// Package vtfilter copies recorded terminal output to a terminal without the
// sequences that make a terminal send input.
//
// A program queries its terminal by printing a sequence such as CSI 6n, and the
// terminal sends the answer as input. A recorded query that is shown again is answered
// again, and the answer reaches a program that did not query.
//
// # What passes
// The filter is an allowlist: text, the
// C0 controls except ENQ, and the escape sequences that move the cursor, erase,
// scroll, style, switch modes, or set titles, colors and links. Everything else
// is removed: today's queries and those of future terminals, images,
// notifications, the clipboard. Modes that make a terminal send a report when
// they are set (1004, 2031, 2048), and those that change how it parses later
// output (VT52, Tektronix), are removed too.
//
// The output is valid UTF-8 without C1 controls, so that terminals and the filter
// parse it alike. Invalid bytes become U+FFFD.
//
// # Where history ends
// Sequences may be split anywhere. A sequence that starts in history and ends in live
// output is live: its first part is buffered until then, and all of it passes.
//
// # Why not a library
// A general parser reports the meaning of a sequence and drops its bytes. This filter
// must keep the bytes unchanged, return an unfinished sequence, and remove anything
// doubtful. A fuzz test checks the output with the parser of charmbracelet/x/ansi.
package vtfilter
