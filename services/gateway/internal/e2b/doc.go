// Package e2b implements both generations of E2B's control plane API, and the HTTP
// endpoints of envd that do not concern a process: enough for the released SDKs.
//
// This package has the routes. Each resource is served by a package below internal, which
// declares the operations that it needs. They decode requests with package wire, and the shape
// of errors is httperr's.
//
// # Differences from E2B that the client sees
// If the sandbox's driver cannot pause, pause responds with 501, and a sandbox that should
// pause at its timeout is destroyed; its detail has onTimeout "kill". A pause keeps the
// processes: memory false responds with 501. The data plane of a paused sandbox without
// autoResume responds with 502, like that of a missing one. Requests for MCP servers
// respond with 501 instead of being ignored. cpuCount and memoryMB are those of the host
// if no limit is in force.
//
// A sandbox starts from its template's files, not from its memory: each sandbox runs the
// start command itself, and is returned to its client when the ready command succeeds, or
// after five seconds. An unset variable in an ENV or WORKDIR step stays as it is written.
// The hash of the files that a build copies is not verified; files are stored per tenant
// under that hash. E2B's images (e2bdev/...) are replaced by the host's own files. The
// password of a registry of type aws comes from ECR's API, in the region that the client
// names, or from the operator's --ecr-endpoint.
package e2b
