// Package builds implements the operations on the records of template builds, on their
// credentials and on the files that they copy. Package builder runs the builds.
package builds
