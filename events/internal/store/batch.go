package store

import (
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
)

// A batch is published as in JetStream's fast batch publishing (ADR-50), in the mode that ends a
// batch at the first message that is not stored. The reply subject of each message is
//
//	<inbox>.<batch>.<messages per flow response>.fail.<position in the batch>.<operation>.$FI
const (
	batchStart  = 0 // operations
	batchNext   = 1
	batchCommit = 2

	batchFlow = 1000 // more than a batch has: one response tells about all of it
)

// batchAck is a response of the stream to a batch. With a type it concerns one message: the first
// was received ("ack"), or one was not stored.
type batchAck struct {
	Type  string    `json:"type"`
	Error *apiError `json:"error"`
	Seq   uint64    `json:"seq"` // of the batch's last message, without a type
	Batch string    `json:"batch"`
	Count int       `json:"count"` // messages stored
}

// publishBatch publishes messages of the stream, at least two, and returns the stream sequence of
// the last one if each was stored. It makes one attempt; after an error the outcome of each is
// unknown.
func (c *combiner) publishBatch(batch []*appended) (last uint64, err error) {
	l := c.conn
	broken := l.unbroken().Done()
	id := l.id + "-" + l.batches.token() // unique for the stream
	ch, done := l.batches.await(id, len(batch)+2)
	defer done()
	if err := c.sendBatch(id, batch); err != nil {
		return 0, err
	}
	late := startTimer(attempt)
	defer stopTimer(late)
	for {
		select {
		case msg := <-ch:
			var ack batchAck
			switch err := json.Unmarshal(msg.Data, &ack); {
			case err != nil:
				return 0, batchFailed(batch[0], "response: "+err.Error())
			case ack.Error != nil:
				return 0, batchFailed(batch[0], ack.Error.Description)
			case ack.Type == "ack":
				continue
			case ack.Type != "" || ack.Batch != id || ack.Count != len(batch):
				return 0, batchFailed(batch[0], fmt.Sprintf("%d of %d messages were stored", ack.Count, len(batch)))
			}
			l.Monitor.appended(batch[0].subject, nil, time.Now())
			l.links.answer(batch[0].subject)
			return ack.Seq, nil
		case <-late.C:
			return 0, batchFailed(batch[0], "no response")
		case <-broken:
			return 0, batchFailed(batch[0], "the connection broke")
		}
	}
}

// sendBatch sends the messages of a batch. Nothing of this connection comes between them.
func (c *combiner) sendBatch(id string, batch []*appended) error {
	l := c.conn
	l.sending.Lock()
	defer l.sending.Unlock()
	for i, m := range batch {
		op := batchNext
		switch i {
		case 0:
			op = batchStart
		case len(batch) - 1:
			op = batchCommit
		}
		reply := l.batches.prefix + id + "." + strconv.Itoa(batchFlow) + ".fail." + strconv.Itoa(i+1) + "." + strconv.Itoa(op) + ".$FI"
		msg := &nats.Msg{Subject: m.subject, Reply: reply, Data: m.data, Header: nats.Header{headerAfter: {strconv.FormatUint(m.after, 10)}}}
		if err := l.nc.PublishMsg(msg); err != nil {
			return err
		}
	}
	return nil
}
