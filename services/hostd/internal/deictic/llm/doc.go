// Package llm calls language models by their vendors' APIs: Chat Completions, which OpenAI, Google,
// DeepSeek and many proxies serve, and Anthropic's Messages.
//
// # Own encoders
// Each API has a small encoder and decoder here. The vendors' SDKs are larger than the rest of the agent:
// see docs/e2a-agent.md for what was measured.
//
// # Limits
// An answer is a stream of server-sent events. Its size, the size of an event and the time without
// data are limited, so that a faulty endpoint neither fills the memory nor blocks the agent. An answer that
// ends early is an error.
//
// # Retries
// [Client.Send] repeats requests that failed for reasons that may pass: no connection, 429, 5xx, and answers
// that end early. It waits as long as the endpoint asks for by Retry-After. The key is read again for
// each attempt.
package llm
