// Package envd serves the HTTP endpoints of envd, E2B's agent in a sandbox, that do not
// concern a process, and acts like the proxy in front of it.
package envd
