// Package agentexec runs the agent from the shim's binary.
//
// The agent needs TLS and HTTP. Linked into the shim they would enlarge each sandbox's first process and
// delay its start. The agent is therefore a program of its own, which is appended to the shim's file
// with gzip: such bytes are not read before they are needed. The role unpacks them into memory and executes
// them, so that no file of the sandbox is involved.
package agentexec
