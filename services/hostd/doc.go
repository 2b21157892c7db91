// Package hostd is the service of a node that runs sandboxes: it creates the sandboxes that the
// scheduler placed on it, starts processes in them, and records their events.
//
// # Runs
// Each run of the daemon has an epoch, taken with its lease; a newer run fences the older one.
// Hostd may be killed at any moment: the shims, one per sandbox, outlive it and keep the events
// that were not stored. The next run reads the journal, attaches to the shims that it finds,
// reads from the log where each record ends, and continues from there: no byte is lost or
// duplicated.
//
// # Commands
// A command is executed at most once. A start is claimed in the process's record before the
// process is spawned. All other commands carry their position in the host's command subject, and
// the shim drops a position that it has already accepted. The journal's cursor moves past a
// command only when the command need not be read again.
//
// # Order of writes
// A fact is written to the catalog and to the record at the same time, and a gateway shows it when
// its view has both. The shim drops an event only after both are stored. Every record ends in exactly one Finished: the shim's, or, if the
// shim died, hostd's with the cause shim_lost and no exit code.
//
// # Parts
// This package composes a host from packages inside of it. None of them imports it; what they need
// of a host or a sandbox is handed in.
//
//   - sandboxes owns the sandboxes: their creation, pauses, snapshots and end.
//   - commands reads the host's commands; session exchanges them and events with a sandbox's shim and
//     writes the records of its processes; audit completes records whose end the log has lost.
//   - instances creates, finds and removes instances, with drivers and warmpool.
//   - network has the sandboxes' traffic, with egress and veth; ports connects gateways to them.
//   - templates, prefetch, snapshots and volumes have the files; disk and cpushare guard what
//     sandboxes share.
//   - convruntime is the runtime of conversations, which is in the shim's binary.
//   - deictic is our own agent, which agentexec runs from the shim's binary.
//   - lease holds the host's claim to be alive.
//   - journal has what the next run needs and the log does not have.
//
// Mutexes are taken in this order: session, desired state of a sandbox, network.
package hostd
