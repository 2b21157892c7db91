// Package interpreter is the surface of code interpreters: code is run in a
// context, which keeps what the code before it defined (WIRE-E2B 3.5).
//
// # A context is a process
// A context's kernel is a process of the sandbox, found by its tag; an execution
// is another one, which hands the code to the kernel and prints what comes back,
// a JSON object a line. Both have records like any other: whoever asked may leave,
// and read the whole execution later under GET /v1/processes/{id}/events. To end
// an execution is to end its process: the kernel is interrupted. Where E2B does that
// when its client leaves, here the code goes on, and the next in its context waits for
// it; who does not want that says timeout_ms, ends the process, or restarts the context.
//
// # Kernels
// They are programs of this package in the languages' own interpreters, which
// the template must have: python3 for python, bash, r (with R) and java (with a JDK's
// jshell), node for javascript and typescript (with esbuild, or a node of 22.6 or later).
// Each but node's is watched by a process of its own: code that ignores its interrupt for
// 10 s loses its kernel, which is reported (KernelDied), and the context goes on with a new
// one, as after code that ended its kernel itself. JavaScript that never yields cannot be
// interrupted, only restarted. Python code runs in an event loop that goes on between
// executions, and a process that it forks ends where the code does.
//
// # Output between executions
// What threads, tasks and children print while no execution runs is in the record of the
// context's kernel, as plain text after the line "ready".
package interpreter
