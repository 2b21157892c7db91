// Package bench has the command bench, which measures latency and throughput end to end:
// client, gateway, NATS, host, process and back.
//
// # Scenarios
// bench.go lists the scenarios and prints the results. one.go measures single commands and
// streams, unary.go calls, files and the creation of sandboxes, many.go many at once, and
// noisy.go the start of commands beside a sandbox or
// program that overloads the machine (load.go). usage.go measures what they cost the server.
// against.go compares two binaries in one run. wire.go implements the part of the E2B
// SDKs' protocol that measuring a start requires. codex.go has the scenarios of
// codex's protocol, backendai.go and backendpty.go those of Backend.AI's, and e2a.go those of e2a's API.
package bench
