// Package e2b speaks E2B's control plane, both generations of it, and what of
// envd's HTTP belongs to no process: enough for the released SDKs.
//
// # What differs from E2B, and is said to the client
// Where the sandbox's driver cannot pause, pause answers 501, and a sandbox that
// was asked to pause at its end is destroyed there; its detail says onTimeout
// "kill". A pause keeps the processes: memory false answers 501. A paused
// sandbox without autoResume answers its data plane as one that is gone, 502. Requests for what is not there (volumes, network rules, MCP servers,
// identities) answer 501 instead of being dropped in silence. cpuCount and
// memoryMB are those of the host where no limit is in force.
package e2b
