package streams

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"time"
)

// Health reports whether a stream can be written, how full it is, and how its replicas are.
type Health struct {
	Stream  string    // name; empty: problems of the servers as a whole
	Blocked string    // why nothing can be stored; empty: writable
	Since   time.Time // when Blocked was first seen
	Damaged []string  // servers that cannot store it while others can, each as "server: reason"
	Led     bool      // a leader answered the last check
	Usage   Usage     // as of the last answer of a leader
}

// Follow takes from the previous check what this one did not find out.
func (h *Health) Follow(before *Health, now time.Time) {
	if !h.Led {
		h.Usage = before.Usage
	}
	if h.Blocked != "" {
		h.Since = now
		if before.Blocked != "" {
			h.Since = before.Since
		}
	}
}

// Usage is how full a stream is and how far its replicas are.
type Usage struct {
	Bytes, MaxBytes uint64 // MaxBytes is 0 without a limit
	Messages        uint64
	Replicas        int    // besides the leader
	Behind          int    // replicas that are offline or not up to date
	Lag             uint64 // operations by which the last replica is behind
}

// ParseInfo parses the answer of a stream's leader to a request of its state. The name of the leader
// is empty if its server is alone.
func ParseInfo(answer []byte) (leader string, u Usage, err error) {
	var info streamInfo
	if err := json.Unmarshal(answer, &info); err != nil {
		return "", u, err
	}
	if err := info.err(); err != nil {
		return "", u, err
	}
	if info.Cluster != nil {
		leader = info.Cluster.Leader
	}
	return leader, info.usage(), nil
}

// ObjectStore begins the names of the streams of object stores (NATS, ADR-20).
const ObjectStore = "OBJ_"

// ParseObjectStores returns the streams of object stores, sorted, in the answer to a request of the names
// of streams.
func ParseObjectStores(answer []byte) ([]string, error) {
	var all struct {
		apiError
		Streams []string `json:"streams"`
	}
	if err := json.Unmarshal(answer, &all); err != nil {
		return nil, err
	}
	names := slices.DeleteFunc(all.Streams, func(name string) bool { return !strings.HasPrefix(name, ObjectStore) })
	slices.Sort(names)
	return names, all.err()
}

// apiError is the error in an answer of JetStream.
type apiError struct {
	Error *struct {
		Description string `json:"description"`
	} `json:"error"`
}

func (e *apiError) err() error {
	if e.Error == nil {
		return nil
	}
	return errors.New(e.Error.Description)
}

// streamInfo is the part of a leader's answer that is used here.
type streamInfo struct {
	apiError
	Config struct {
		MaxBytes int64 `json:"max_bytes"`
	} `json:"config"`
	State struct {
		Messages uint64 `json:"messages"`
		Bytes    uint64 `json:"bytes"`
	} `json:"state"`
	Cluster *struct {
		Leader   string `json:"leader"`
		Replicas []struct {
			Current bool   `json:"current"`
			Offline bool   `json:"offline"`
			Lag     uint64 `json:"lag"`
		} `json:"replicas"`
	} `json:"cluster"`
}

func (i *streamInfo) usage() Usage {
	u := Usage{Bytes: i.State.Bytes, MaxBytes: uint64(max(i.Config.MaxBytes, 0)), Messages: i.State.Messages}
	if i.Cluster == nil {
		return u
	}
	u.Replicas = len(i.Cluster.Replicas)
	for _, r := range i.Cluster.Replicas {
		if !r.Current || r.Offline {
			u.Behind++
		}
		u.Lag = max(u.Lag, r.Lag)
	}
	return u
}
