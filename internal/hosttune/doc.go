// Package hosttune holds the recommended settings of a production host: kernel limits that
// all sandboxes share, and the priority of the services. The files in deploy/ set the same
// values.
//
// Settings change only if the operator asks for it, by --tune-host or those files. [Apply]
// reports each change, and [Report] only reads.
package hosttune
