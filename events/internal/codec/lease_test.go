package codec

import (
	"reflect"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/millrace/millrace/events/fleet"
)

func TestLeaseIsDecodedAsItWasEncoded(t *testing.T) {
	for _, want := range []fleet.Lease{
		{Host: "h", Epoch: 3},
		{
			Host: "h", Epoch: 4, TTL: time.Second, Drivers: []string{"direct"}, Capacity: 5, Gone: true, Version: "v",
			Checkpoint: fleet.Checkpoint{Seq: 6, Stored: time.Unix(7, 8), At: time.Unix(9, 10), Missing: 11, Rev: 15},
			Machine:    fleet.Machine{CPUs: 2, Load1: 0.5, MemoryTotal: 12, MemoryFree: 13, DiskTotal: 14},
		},
	} {
		b, err := proto.Marshal(EncodeLease(&want))
		if err != nil {
			t.Fatal(err)
		}
		if got, err := DecodeLease(b); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%+v, %v; want %+v", got, err, want)
		}
	}
}
