package finished

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"testing"
	"time"

	"github.com/millrace/millrace/events/process"
	"github.com/millrace/millrace/events/sandbox"
)

// fill sets every field of a struct, so that a field that is added later is covered.
func fill(v reflect.Value, n int64) {
	switch v.Kind() {
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem(), n)
	case reflect.Struct:
		if v.Type() == reflect.TypeFor[time.Time]() {
			v.Set(reflect.ValueOf(time.Unix(n, n)))
			return
		}
		for i := range v.NumField() {
			fill(v.Field(i), n+int64(i))
		}
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 2, 2))
		fill(v.Index(0), n)
		fill(v.Index(1), n+1)
	case reflect.Array:
		for i := range v.Len() {
			fill(v.Index(i), n+int64(i))
		}
	case reflect.Map:
		key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
		fill(key, n)
		fill(value, n)
		v.Set(reflect.MakeMap(v.Type()))
		v.SetMapIndex(key, value)
	case reflect.String:
		v.SetString(fmt.Sprint("text", n))
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Uint8, reflect.Uint32, reflect.Uint64:
		v.SetUint(uint64(n))
	case reflect.Int32, reflect.Int64:
		v.SetInt(n)
	default:
		panic(v.Kind())
	}
}

func TestASummaryIsDecodedAsItWas(t *testing.T) {
	var full process.Summary
	fill(reflect.ValueOf(&full).Elem(), 7)
	full.Spec.Sealed, full.Spec.Hidden = "", "" // the entry of a process that ended has nothing sealed
	full.Spec.Redact = nil                      // and patterns are not stored
	full.Spec.Record = sandbox.RecordMeta
	exit := &process.Exit{Cause: process.CauseNotStarted}
	all := []process.Summary{
		full,
		{Exit: exit},
		{Exit: exit, Started: time.Unix(3, 4), Spec: process.Spec{Cmd: "a", Args: []string{""}}},
		{Exit: exit, Ended: time.Unix(3, 4), Killed: true, Spec: process.Spec{Cmd: string(make([]byte, 5000))}},
		{Exit: exit, Started: time.Unix(9, 0), Ended: time.Unix(3, 0), Last: 1 << 40, Epoch: 1 << 50},
	}
	set := NewSet(MaxSlots)
	for i := range all {
		all[i].ID = process.NewID(sandbox.NewID())
		set.Put(&all[i], uint64(i+1))
	}
	var d Decoder
	for i := range all {
		it, ok := set.Get(all[i].ID)
		if got := d.Summary(&it); !ok || !reflect.DeepEqual(got, all[i]) || it.Rev() != uint64(i+1) {
			t.Errorf("got %+v with rev %d, want %+v", got, it.Rev(), all[i])
		}
	}
}

// model is what a set should have.
type model map[process.ID]process.Summary

// A set has what was put and not removed, over many chunks, and releases chunks without processes.
func TestASetHasWhatWasPutAndNotRemoved(t *testing.T) {
	r, set, want := rand.New(rand.NewPCG(1, 2)), NewSet(MaxSlots), model{}
	revs := map[process.ID]uint64{}
	boxes := []sandbox.ID{"a", "ab", "b"}
	for i := range 3*MaxSlots + 100 {
		s := process.Summary{
			ID: process.NewID(boxes[r.IntN(3)]), Tenant: fmt.Sprint("t", r.IntN(3)), PID: uint32(r.IntN(100)),
			Started: time.Unix(int64(i), 0), Ended: time.Unix(int64(i+r.IntN(9)), 0), Exit: &process.Exit{},
		}
		if r.IntN(10) == 0 { // replaced
			for s.ID = range want {
				break
			}
		}
		set.Put(&s, uint64(i+1))
		want[s.ID], revs[s.ID] = s, uint64(i+1)
	}
	drop := func(what string, over func(id process.ID) bool) {
		for id := range want {
			if over(id) {
				delete(want, id)
			}
		}
		check(t, what, set, want)
	}
	drop("all", func(process.ID) bool { return false })
	set.RemoveBefore(2 * MaxSlots)
	drop("RemoveBefore", func(id process.ID) bool { return revs[id] < 2*MaxSlots })
	before := time.Unix(2*MaxSlots+500, 0)
	set.RemoveEnded(before)
	drop("RemoveEnded", func(id process.ID) bool { s := want[id]; return s.Ended.Before(before) })
	if len(set.free) != 2 || len(set.chunks) != 4 {
		t.Errorf("%d of %d chunks are free, want 2 of 4", len(set.free), len(set.chunks))
	}
	set.RemoveEnded(time.Unix(1<<32, 0))
	drop("all removed", func(process.ID) bool { return true })
	if set.Has("a") {
		t.Error("an empty set has processes of a sandbox")
	}
}

func check(t *testing.T, when string, set *Set, want model) {
	t.Helper()
	var d Decoder
	got, newest := model{}, map[sandbox.ID]process.Summary{}
	for _, it := range set.Oldest(nil, "", process.ListCursor{}, 1<<20) {
		s := d.Summary(&it)
		if was, ok := newest[s.ID.Sandbox()]; ok && was.ListedAt() > s.ListedAt() {
			t.Fatalf("%s: %s is listed after a younger process", when, s.ID)
		}
		got[s.ID] = s
		if s.PID == 7 {
			newest[s.ID.Sandbox()] = s
		}
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%s: %d processes, want %d, or others", when, len(got), len(want))
	}
	n := 0
	for tenant := range 3 {
		n += len(set.Newest(nil, fmt.Sprint("t", tenant), "", process.ListCursor{}, 1<<20))
	}
	if n != len(want) {
		t.Errorf("%s: %d processes of all tenants, want %d", when, n, len(want))
	}
	for sbx, s := range newest {
		if it, ok := set.ByPID(sbx, 7, 0); !ok || it.id() != s.ID {
			t.Errorf("%s: pid 7 of %s is not the newest process", when, sbx)
		}
	}
}
