// Package webhooks implements the operations on webhooks and their deliveries, and lists the
// lifecycle events of sandboxes, which webhooks deliver.
package webhooks
