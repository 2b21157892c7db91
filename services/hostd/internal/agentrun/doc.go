// Package agentrun runs the program of an agent with one task. It is part of the shim's binary, so that
// every sandbox has it.
//
// # Processes
// The agent's recorded process starts a supervisor in a session of its own, passes signals on to it, and
// ends with its exit code. The supervisor starts the program in a process group of its own. A client may
// kill the recorded process with all of its group: the supervisor then kills the program, and still
// writes how that ended. If the supervisor is killed, the recorded process does.
//
// # Results
// The program's standard output is written to [ResultFile] and to the record; its standard error to the
// record alone. When the program has ended and [ResultFile] is complete, its exit code is written to
// [ExitFile]: 128+n after signal n. An agent whose result could not be written has failed, whatever its
// program returned.
//
// # Signals
// SIGINT, SIGTERM, SIGHUP, SIGUSR1 and SIGUSR2 are passed on to the program's group, which may finish
// its work for as long as it needs.
package agentrun
