// Package convruntime is the runtime of a conversation: the program in a sandbox that a client
// talks to. It is the shim's binary in another role (package bootstrap of events), so that every
// sandbox has it.
//
// # Frames
// Its standard input and output are streams of frames (package frame of events); each frame that it
// sends is one write. It answers a text frame with "type":"exec" with the output of the command, and
// echoes other text frames byte for byte. Control frames attach and detach clients.
//
// A "prompt" is a turn of the agent, which is another role of the program: the lines that it prints are
// frames. Package deictic is the agent.
//
// # Order and limits
// Commands without an id run one after the other; commands with an id run concurrently, and their
// frames have it. Both are limited. A command's pipe is read only as fast as frames are written: a
// slow reader of the output blocks the commands, and nothing grows meanwhile.
//
// # Configuration
// The values in env.json are the environment of every command, on top of the sandbox's own. The
// file is read before each one, so that an update needs no signal. It is replaced atomically by
// another process of the same program.
//
// # Size
// The package is part of the shim's binary: it imports no HTTP server and no protobuf reflection.
package convruntime
