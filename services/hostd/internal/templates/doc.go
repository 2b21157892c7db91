// Package templates stores the trees of templates on a host: each once, shared read-only by
// all sandboxes that are made from it.
//
// # Guarantees
// A tree that Get returns is complete and matches its ID. If a fill is interrupted by a kill
// or a loss of power, its partial tree is never used, and
// the next Get continues with the parts that were fetched. Trees that no sandbox uses
// are kept until their space is needed. The least recently used are removed first.
//
// # Trust
// A tree's names and links are untrusted: it is filled through descriptors that cannot lead
// out of it. If hostd is root, a tree can have set-uid files. It is therefore in a directory that
// only hostd may enter.
package templates
