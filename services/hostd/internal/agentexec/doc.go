// Package agentexec runs the agent from the shim's binary.
//
// The agent needs TLS and HTTP. Linked into the shim they would enlarge each sandbox's first process and
// delay its start. The agent is therefore a program of its own, which the shim embeds, compressed: such
// bytes are not read before they are needed. The role unpacks them into memory and executes them, so that
// no file of the sandbox is involved. In a sandbox the shim's own file cannot be read.
//
// # Build
// The file agent.gz of the source is empty. A build compiles cmd/millrace-agent first, and replaces the file
// by the result: the image in its copy of the source, other builds with the flag -overlay.
package agentexec
