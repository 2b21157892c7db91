package backup

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

const (
	chunkSize = 512 << 10
	window    = 16 // chunks in flight

	chunkTimeout = time.Minute

	// The servers store the rest of an archive after its end: at least so many bytes per second.
	finishTimeout = 20 * time.Second
	finishRate    = 4 << 20
)

// errGivenUp reports that the servers have ended a restore: they wait 5 s for each chunk, also while
// a busy disk creates the stream.
var errGivenUp = errors.New("the servers have given up the restore of the stream")

// An upload sends the archive of a stream to the server that restores it, some chunks ahead of
// its acknowledgments.
type upload struct {
	nc       *nats.Conn
	to       string
	inbox    string
	sub      *nats.Subscription
	acks     chan *nats.Msg
	chunk    []byte
	inFlight int
	sent     int64
}

func newUpload(nc *nats.Conn, to string) (*upload, error) {
	u := &upload{nc: nc, to: to, inbox: nats.NewInbox(), acks: make(chan *nats.Msg, window+1)}
	u.chunk = make([]byte, 0, min(chunkSize, nc.MaxPayload()))
	var err error
	u.sub, err = nc.ChanSubscribe(u.inbox, u.acks)
	return u, err
}

func (u *upload) close() { u.sub.Unsubscribe() }

func (u *upload) write(ctx context.Context, b []byte) error {
	for len(b) > 0 {
		n := min(len(b), cap(u.chunk)-len(u.chunk))
		u.chunk = append(u.chunk, b[:n]...)
		b = b[n:]
		if len(u.chunk) == cap(u.chunk) {
			if err := u.flush(ctx); err != nil {
				return err
			}
		}
	}
	return nil
}

func (u *upload) flush(ctx context.Context) error {
	if u.inFlight == window {
		if err := u.ack(ctx); err != nil {
			return err
		}
	}
	if err := u.nc.PublishRequest(u.to, u.inbox, u.chunk); err != nil {
		return err
	}
	u.inFlight++
	u.sent += int64(len(u.chunk))
	u.chunk = u.chunk[:0]
	return nil
}

// ack waits for the acknowledgment of a chunk.
func (u *upload) ack(ctx context.Context) error {
	msg, err := u.next(ctx, chunkTimeout)
	if err != nil {
		return err
	}
	u.inFlight--
	if len(msg.Data) > 0 {
		_, err := result(msg)
		return fmt.Errorf("the servers reject the archive: %w", err)
	}
	return nil
}

func (u *upload) next(ctx context.Context, most time.Duration) (*nats.Msg, error) {
	ctx, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	select {
	case msg := <-u.acks:
		if len(msg.Data) == 0 && msg.Header.Get("Status") == "503" {
			return nil, errGivenUp
		}
		return msg, nil
	case <-ctx.Done():
		return nil, fmt.Errorf("no answer from the servers: %w", ctx.Err())
	}
}

// finish ends the archive and returns the state of the restored stream.
func (u *upload) finish(ctx context.Context) (*jetstream.StreamState, error) {
	if len(u.chunk) > 0 {
		if err := u.flush(ctx); err != nil {
			return nil, err
		}
	}
	for u.inFlight > 0 {
		if err := u.ack(ctx); err != nil {
			return nil, err
		}
	}
	if err := u.nc.PublishRequest(u.to, u.inbox, nil); err != nil {
		return nil, err
	}
	msg, err := u.next(ctx, finishTimeout+time.Duration(u.sent/finishRate)*time.Second)
	if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
		return nil, errGivenUp // a server that gives up at the end of an archive does not answer
	}
	if err != nil {
		return nil, err
	}
	return result(msg)
}

// result returns the state of the stream that was restored, or the error of the servers.
func result(msg *nats.Msg) (*jetstream.StreamState, error) {
	var answer struct {
		State jetstream.StreamState `json:"state"`
		Error *jetstream.APIError   `json:"error"`
	}
	if err := json.Unmarshal(msg.Data, &answer); err != nil {
		return nil, err
	}
	if answer.Error != nil {
		return nil, answer.Error
	}
	return &answer.State, nil
}
