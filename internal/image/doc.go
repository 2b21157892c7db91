// Package image makes templates: of a distribution's packages, and of images
// that others made.
//
// # Trust
// An image is written by strangers. Its layers are put together in memory, by
// names alone: nothing of it touches the disk of who imports it. A path that
// climbs, a device, a layer that is not what its sum says, or more bytes, files or
// memory for their names than there may be is an error, not a template.
//
// # Form
// The tar of a template is canonical: directories first, each before what is in
// it, then files, then links; no attributes but mode, owner and time. It is cut
// into parts (see events/template), which a sink takes as they come.
package image
