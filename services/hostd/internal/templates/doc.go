// Package templates stores the trees of templates on a host: each once, shared read-only by
// all sandboxes that are made from it.
//
// # Guarantees
// A tree that Get returns is complete and matches its ID. If a fill is interrupted by a kill
// or a loss of power, its partial tree is never used, and
// the next Get continues with the parts that were fetched. Trees that no sandbox uses
// are kept until their space is needed; the longest unused are removed first.
//
// # Trust
// A tree's names and links are untrusted: it is filled by descriptors
// that do not lead out of it, and is in a directory that only hostd may enter,
// because it has set-uid files where hostd is root.
package templates
