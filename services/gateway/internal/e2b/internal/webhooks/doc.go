// Package webhooks serves E2B's webhooks, their deliveries, and the events of sandboxes.
package webhooks
