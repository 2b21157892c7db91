// Package record opens processes' records for the surfaces that speak of places
// in them: it reads "after" from a request, judges it against what is stored,
// and bounds what is read.
//
// # A place is judged before the first byte is answered
// A place before what retention has left is Gone and one past the end is
// Invalid, each as a *RangeError that names a place that can be read; neither is
// ever an empty answer.
package record
