// Package latency observes how long operations take. It is independent of the library that
// exposes the figures, so that the core is, too.
package latency
