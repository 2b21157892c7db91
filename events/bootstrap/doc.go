// Package bootstrap says how a gateway starts the runtime of a conversation in a sandbox, and how
// the two agree on its configuration.
//
// # Program
// The runtime is the program of the sandbox's shim in another role: every sandbox of every driver
// has it, whatever its template contains. [Start] returns the processes to start, of which the last
// one is the runtime; [Update] returns those that replace the configuration of a running one. Each
// of the others has to exit with code 0 before the next one starts.
//
// # Configuration
// A [Config] has the values of a conversation's secret bundles and the platform's own, which take
// precedence. Both travel in the environments of the processes, which are sealed outside of the
// sandbox, under names with prefixes: a secret named PATH or GODEBUG must not affect the runtime
// itself. Inside, the values are a JSON object in [EnvFile], in memory, which only the sandbox's
// user can read. An update replaces all of them, so that removed names vanish.
//
// A process's environment is limited, and a bundle may be larger. The values are therefore divided
// among as many processes as they need: the last one puts them together.
package bootstrap
