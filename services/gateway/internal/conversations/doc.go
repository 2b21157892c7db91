// Package conversations creates, resumes and attaches the conversations of clients with agents, which
// clients call sessions.
//
// # One sandbox
// A conversation is served by one sandbox at a time. Its id follows from the conversation and a
// generation, and the append of the aggregate ([conversation.State]) decides which gateway creates it.
// The other gateways wait for the result. If the gateway dies, another one takes over once its lease has
// ended, and finds the sandbox and the runtime by their ids.
//
// # Runtime
// The runtime is a process of the sandbox. What it prints is a record like any other: frames of package
// frame, in which the messages for a client follow the answer to its attachment.
//
// # Ends
// Every gateway looks for conversations whose sandbox has ended, and appends that; the first one
// succeeds.
package conversations
