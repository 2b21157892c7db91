package fleet

import "time"

// StoreSubject is the core NATS subject on which each of our NATS servers publishes its
// [StoreReport] every two seconds.
const StoreSubject = "natsd.store"

// StoreReport is a NATS server's report about its own copy of the streams.
type StoreReport struct {
	Server   string         `json:"server"`             // name, unique in its cluster
	Problems []StoreProblem `json:"problems,omitempty"` // none: everything can be stored

	NATS       string         `json:"nats"`                  // version of nats-server
	Time       time.Time      `json:"time"`                  // by the server's clock
	Clustered  bool           `json:"clustered,omitempty"`   // part of a cluster
	MetaLeader bool           `json:"meta_leader,omitempty"` // leads the cluster
	Clients    map[string]int `json:"clients,omitempty"`     // number of connections by their name
}

// StoreProblem is a reason why a server cannot store a stream.
type StoreProblem struct {
	Stream string `json:"stream,omitempty"` // empty: JetStream as a whole
	Error  string `json:"error"`
}
