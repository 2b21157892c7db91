// Package bases keeps a template for as long as a snapshot, another template or a build is
// based on it, also after it has lost its names.
package bases
