// Package tunnel carries byte streams between a service and a host through the log: the
// streams of package mux, over two subjects in memory with one writer each.
//
// A [Dialer] opens streams to hosts; [Transport.ServeTunnels] accepts them at a host. A tunnel does
// not survive a break. Data sent until then may or may not have arrived, and the streams end
// with an error; none continues with missing bytes.
package tunnel
