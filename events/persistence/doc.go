// Package persistence stores in the log how far conversations have been sent to the persistence
// backends of their tenants, and keeps a view of that. What is sent is in the records of processes.
//
// # Conditions
// There is one [Progress] per sandbox. The last message of a subject is valid, and replaces the one
// before by compare-and-append. Each message has a random mark, so that an append whose
// acknowledgment was lost is not mistaken for that of another writer with the same content.
//
// # Claims
// A progress with a holder is claimed by one run of a reaper. Another run takes over a claim that is
// older than its holder may use it ([Progress.Free]), so that two never send at once.
//
// # Retention
// The view keeps a progress for [Keep] after everything was sent, and a sweep then removes it from the
// log.
package persistence
