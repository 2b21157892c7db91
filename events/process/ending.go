package process

import "time"

// lostReason is the reason of a gap that is stored because the log lost acknowledged
// events.
const lostReason = "the store lost it"

// Hole returns the gap for the events after seq last, up to and including to, which the log
// lost for good. It is appended in their place.
func Hole(last, to Seq) Event {
	return Event{Seq: to, Time: time.Now(), Body: Gap{From: last + 1, To: to, Reason: lostReason}}
}

// Ending returns the events that complete a record whose last event is last, for the ended
// process s: its end, and before it a gap if events are missing.
func Ending(last Seq, s *Summary) []Event {
	end := Event{Seq: max(last+1, s.Last), Time: s.Ended, Body: Finished{Exit: *s.Exit}}
	if end.Seq == last+1 {
		return []Event{end}
	}
	return []Event{Hole(last, end.Seq-1), end}
}
