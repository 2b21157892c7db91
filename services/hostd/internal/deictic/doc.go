// Package deictic is our own agent: a loop that asks a model, runs the tools that it calls, and ends with
// its answer.
//
// # Two forms
// With a task in env.json the agent is one-shot: it prints the result on standard output and its progress on
// standard error. As a turn of a conversation it reads the prompt from standard input and prints frames,
// one per line, which the runtime of conversations passes to the client. The process ends with the turn.
//
// # Record
// Each step of a conversation is appended to a file in the home directory, which is saved with the
// sandbox's files. A turn that died continues from there: a tool whose result is not in the record is not
// run again, and the model gets a message that says so. The file and each request are bounded.
//
// # Tools
// The tools for files open only what is below the working directory, /workspace and /tmp; links that
// lead out of them are refused. Commands run in a shell as the same user, without the keys.
//
// # Several agents
// With several agents in app_json a planner gets the prompt. Its only tool delegates tasks to the
// agents, each of which has its own tools and messages.
package deictic
