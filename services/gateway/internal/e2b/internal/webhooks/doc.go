// Package webhooks serves E2B's webhooks, their deliveries, and the events that they are about.
package webhooks
