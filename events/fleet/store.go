package fleet

// StoreSubject is the subject of core NATS on which each NATS server of ours publishes its
// [StoreReport], every [StoreInterval].
const StoreSubject = "natsd.store"

// StoreReport is what a NATS server reports about its own copy of the streams.
type StoreReport struct {
	Server   string         `json:"server"`             // name, unique in its cluster
	Problems []StoreProblem `json:"problems,omitempty"` // none: everything can be stored
}

// StoreProblem is a reason why a server cannot store a stream.
type StoreProblem struct {
	Stream string `json:"stream,omitempty"` // empty: JetStream as a whole
	Error  string `json:"error"`
}
