// Package screens serves what a process's record looks like: its screen at any event and live,
// its timeline, a search in its output, and an export as asciicast. The screen of a process without a
// terminal is its text: the end of its output up to an event, with the stream of each part.
//
// # Screens
// A screen is folded from the record by package screen, so that every gateway shows the same at
// the same seq. Key frames, one for each 256 KiB of output, are kept in a cache of bounded size
// that all requests share: a request folds from the last key frame before its seq.
//
// A gateway stores some of the key frames in the log (package keyframe): the last one every 2 MiB of
// output, and others at distances of 4 MiB, or more in a longer record. So any gateway opens a terminal
// and shows any event of it after it has read a few MiB. Frames of records whose policy keeps no output
// are not stored.
//
// # Live
// All watchers of a process on a gateway share one fold of its record. A watcher first receives
// the whole screen, then the rows that differ from what it received last, at most 30 times a
// second. A slow watcher skips the screens in between. To resume is to begin with the whole
// screen again.
//
// # Bounds
// A request folds, indexes or searches for at most as long as a call may take. What it has
// done is kept, so that a retry of a request that ended with 503 continues there. A fold goes on
// after its request has ended, for at most five minutes.
package screens
