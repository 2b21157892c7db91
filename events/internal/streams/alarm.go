package streams

import (
	"fmt"
	"log/slog"
	"time"
)

// repeatAlarm is how often a lasting alarm is logged.
const repeatAlarm = time.Minute

// Alarms has the streams with a problem, and when it was last logged.
type Alarms map[string]time.Time

// Report logs an alarm when it begins, while it lasts, and when it ends.
func (a Alarms) Report(log *slog.Logger, h *Health, now time.Time) {
	last, alarmed := a[h.Stream]
	if h.Blocked == "" && len(h.Damaged) == 0 {
		if alarmed {
			delete(a, h.Stream)
			log.Info("stream recovered", "stream", h.Stream)
		}
		return
	}
	if alarmed && now.Sub(last) < repeatAlarm {
		return
	}
	a[h.Stream] = now
	if h.Blocked != "" {
		log.Error("stream cannot be written", "stream", h.Stream, "reason", h.Blocked, "since", h.Since)
		return
	}
	log.Error("copies of a stream are damaged, others are complete", "stream", h.Stream, "copies", fmt.Sprint(h.Damaged))
}
