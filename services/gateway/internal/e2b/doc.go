// Package e2b speaks E2B's control plane, both generations of it, and what of
// envd's HTTP belongs to no process: enough for the released SDKs.
//
// # What differs from E2B, and is said to the client
// Where the sandbox's driver cannot pause, pause answers 501, and a sandbox that
// was asked to pause at its end is destroyed there; its detail says onTimeout
// "kill". A pause keeps the processes: memory false answers 501. A paused
// sandbox without autoResume answers its data plane as one that is gone, 502. Requests
// for MCP servers answer 501 instead of being dropped in silence. cpuCount and
// memoryMB are those of the host where no limit is in force.
//
// A template's sandboxes begin with its files, not with its memory: each starts the
// start command itself, and is given to its client when the ready command says so, or
// after five seconds. A variable in an ENV or WORKDIR step that nobody has set stays
// as it is written. The hash of what a build copies is the client's word; what is
// stored under it is its own tenant's. Images of E2B's (e2bdev/...) are the host's
// own files. The password of a registry of type aws comes from ECR's API, in the
// region that the client names or at the operator's --ecr-endpoint.
package e2b
