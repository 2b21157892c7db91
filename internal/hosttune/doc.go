// Package hosttune holds what a production host should set: limits of the kernel that all
// sandboxes share, and the priority of the services. The files in deploy/ set the same
// values.
//
// # Manners
// Nothing here is set unless the operator asks for it, by --tune-host or by those files.
// [Apply] reports each change, and [Report] only reads.
package hosttune
