// Package interpreter is the code interpreter surface: it runs code in a context, which
// keeps what earlier code defined.
//
// # A context is a process
// A context's kernel is a process of the sandbox, found by its tag. An execution is
// another process, which passes the code to the kernel and prints the results, one JSON
// object per line. Both have records like any other process: a client may disconnect and
// later read the whole execution under GET /v1/processes/{id}/events. Ending the process of
// an execution interrupts the kernel. When a client disconnects, E2B interrupts its code;
// here the code continues, and the next execution in its context waits for it. To avoid that,
// set timeout_ms, end the process, or restart the context.
//
// # Kernels
// Kernels are programs of this package that run in the languages' own interpreters, which
// the template must provide: python3 for python, bash, r (with R) and java (with a JDK's
// jshell), node for javascript and typescript (with esbuild, or node 22.6 or later). Each
// kernel except node's has a supervisor process: code that ignores its interrupt for 10 s
// loses its kernel, which is reported (KernelDied), and the context continues with a new
// one, as after code that ended its kernel itself. JavaScript that never yields cannot be
// interrupted, only restarted. Python code runs in an event loop that keeps running between
// executions. A process that it forks ends where the code does.
//
// # Output between executions
// Output of threads, tasks and children while no execution runs is in the record of the
// context's kernel, as plain text after the line "ready".
package interpreter
