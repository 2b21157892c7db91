// Package fair decides whose output is stored next, so that no sandbox waits for another
// one's flood.
//
// # Quiet and loud
// Each sandbox has a Flow. A flow that stores no more than its allowance is quiet and never
// waits. A flow that stores more is loud until it has tried to store nothing for long
// enough to make up for the excess.
//
// # Turns
// Loud flows have a limited number of bytes in flight and take turns by bytes: a flow of a
// thousand processes gets as much as a flow of one. While another flow is quiet and stores
// something, a loud flow is slowed down, together with all other such flows, to a rate that
// leaves the machine to the quiet one. Otherwise it is not limited, and does not wait for
// flows that are slowed down. The reason: a flood's work comes in large pieces, which delay
// other sandboxes' commands. These are the flush to disk each second, and a garbage
// collector that runs more often the faster memory fills.
//
// # Back pressure
// A waiting flow acknowledges nothing, so its shim's window closes and its processes block.
// Nothing is dropped.
package fair
