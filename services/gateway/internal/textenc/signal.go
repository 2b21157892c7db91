package textenc

import (
	"encoding/json"
	"strings"

	"github.com/millrace/millrace/events/kind"
)

// maxSignal is the last real-time signal of Linux.
const maxSignal = 64

// Signal is a signal in a request: a number, or a name with or without SIG. The zero
// value means no signal.
type Signal int32

// UnmarshalJSON parses 15, "SIGTERM", "TERM" or "term"; its errors are Invalid.
func (s *Signal) UnmarshalJSON(b []byte) error {
	if string(b) == "null" {
		return nil
	}
	var name string
	if err := json.Unmarshal(b, &name); err == nil {
		n, ok := signalNumber(name)
		if !ok {
			return kind.Newf(kind.Invalid, "parse signal", "", "unknown signal %q", name)
		}
		*s = Signal(n)
		return nil
	}
	var n int32
	if err := json.Unmarshal(b, &n); err != nil || n < 1 || n > maxSignal {
		return kind.New(kind.Invalid, "parse signal", "", "signal: must be a name or a number from 1 to 64")
	}
	*s = Signal(n)
	return nil
}

// signalNumber returns the Linux number of a common signal.
func signalNumber(name string) (int32, bool) {
	switch strings.TrimPrefix(strings.ToUpper(name), "SIG") {
	case "HUP":
		return 1, true
	case "INT":
		return 2, true
	case "QUIT":
		return 3, true
	case "ABRT":
		return 6, true
	case "KILL":
		return 9, true
	case "USR1":
		return 10, true
	case "USR2":
		return 12, true
	case "PIPE":
		return 13, true
	case "ALRM":
		return 14, true
	case "TERM":
		return 15, true
	case "CHLD":
		return 17, true
	case "CONT":
		return 18, true
	case "STOP":
		return 19, true
	case "TSTP":
		return 20, true
	case "WINCH":
		return 28, true
	}
	return 0, false
}
