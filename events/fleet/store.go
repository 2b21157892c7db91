package fleet

// StoreSubject is the core NATS subject on which each of our NATS servers publishes its
// [StoreReport] every two seconds.
const StoreSubject = "natsd.store"

// StoreReport is a NATS server's report about its own copy of the streams.
type StoreReport struct { // name, unique in its cluster
	Server   string         `json:"server"`             // name, unique in its cluster
	Problems []StoreProblem `json:"problems,omitempty"` // none: everything can be stored
}

// StoreProblem is a reason why a server cannot store a stream.
type StoreProblem struct {
	Stream string `json:"stream,omitempty"` // empty: JetStream as a whole
	Error  string `json:"error"`
}
