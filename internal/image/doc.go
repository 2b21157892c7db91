// Package image creates templates from Debian packages and from container images.
//
// # Trust
// An image is untrusted. Its layers are merged in memory, by names alone: its files are
// never unpacked on the importing machine. A path that leaves the image, a device, a
// layer that does not match its checksum, or too many bytes, files or bytes of names are
// errors.
//
// # Form
// The tar of a template is canonical: directories first, each before its contents, then
// files, then links; the only attributes are mode, owner and time. It is split into parts
// (see events/template), which a sink receives in order.
package image
