// Package templates keeps the trees of templates on a host: each once, read by
// all sandboxes that are made from it.
//
// # Promise
// A tree that Get gives is whole and is what its ID says. Wherever filling one is
// cut off, by a kill or a power loss, nothing of it is ever taken for whole, and
// the next Get goes on with the parts that had come. Trees that no sandbox uses
// are kept until others need their room, the longest unused go first.
//
// # Trust
// The tree's names and links were made by strangers: it is filled by descriptors
// that do not lead out of it, and stands in a directory that is shut to all but
// hostd, because it has set-uid files where hostd is root.
package templates
