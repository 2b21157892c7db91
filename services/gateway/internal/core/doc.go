// Package core is what the gateway does, whatever protocol a client speaks: it
// creates and ends sandboxes, starts, finds, reads, feeds and signals
// processes. It knows events and nothing of HTTP; a surface is a decoder in
// front of it and an encoder behind it.
//
// # Who may
// Every method takes a Principal. What belongs to another tenant, or to another
// sandbox than the one a token is good for, is NotFound, as if it did not exist.
//
// # Reading your writes
// A miss is believed only after the view has caught up with the log, so that an
// answer of one gateway can be taken to any other.
//
// # State
// A Core keeps nothing that another gateway lacks, but for the starts it sent
// and nobody has claimed yet; Run ends those whose host never does.
package core
