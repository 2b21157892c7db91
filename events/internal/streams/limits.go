package streams

import "time"

// Limits of what is kept.
const (
	// MaxSamples is the number of samples of resource use kept per sandbox.
	MaxSamples = 720
	// MaxAttempts is the number of deliveries kept per webhook.
	MaxAttempts = 10_000
	// LifecycleAge is how long deliveries to webhooks are kept.
	LifecycleAge = 7 * 24 * time.Hour
)

// Ages at which messages are dropped.
const (
	AuditAge   = 30 * 24 * time.Hour // of builds' records, and of ended sandboxes' records
	CommandAge = 24 * time.Hour      // of commands
	DenialAge  = 90 * 24 * time.Hour // of the audit trail
	TallyAge   = 16 * time.Minute    // of counts of requests
)
