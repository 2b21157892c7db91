// Package streams names the streams of the log and the subjects that they store, and states
// how long and how much they keep.
package streams
