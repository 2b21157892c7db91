// Package fair says whose output is stored next, so that no sandbox waits for
// another one's flood.
//
// # Quiet and loud
// Each sandbox has a Flow. One that stores no more than its allowance is quiet:
// it never waits. One that stores more is loud until it has wanted to store nothing
// for as long as makes up for that.
//
// # Turns
// Only so much of what is loud is on its way at a time, and loud flows take turns
// by bytes: one of a thousand processes gets as much as one of a single process.
// While anybody else is quiet and stores something, a loud flow is slowed down, together
// with all others of which that is so, to a rate that leaves the machine to them; else it
// is as fast as it can, and waits for none that is slowed down.
// A flood's part of the store's work comes in large pieces, which others' commands meet:
// what is flushed to the disk each second, and a garbage collector that runs the more often
// the faster memory fills.
//
// # Back pressure
// Who waits acks nothing, so that its shim's window closes and its processes
// wait. Nothing is dropped.
package fair
