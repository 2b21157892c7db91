// Package network connects a sandbox with the world through hostd: streams of hostd to ports
// of the sandbox, and connections of the sandbox to hostd's egress proxy.
package network
