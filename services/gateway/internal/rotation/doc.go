// Package rotation gives the values of a rotated secret bundle to running conversations, without a restart.
//
// # Facts
// The log says which generations of its bundles the runtime of a conversation has. A gateway resolves all bundles of the conversation, hands their values to
// the runtime and then stores that the runtime has them. [Rotator.Rotate] does that for a rotation and waits
// for it. [Rotator.Run] of every gateway does it for conversations that are behind, because a gateway died
// or a host was silent.
//
// # Concurrency
// Two gateways may give values to a runtime at the same time, and the runtime may have those of
// either. The one that stores its result second gets a Conflict, resolves again and repeats, so that
// what the runtime has last is what the log says.
//
// # Bundles that cannot be resolved
// A conversation keeps its values if one of its bundles was deleted, or if the rotation made two of them
// have a key of the same name. Rotate reports it like one that did not answer.
package rotation
