package driver

import (
	"reflect"
	"slices"
	"testing"
)

// Each ability is told, whether a driver has it or not.
func TestAbilitiesAreTold(t *testing.T) {
	can, cannot := (&Caps{}).Abilities()
	if len(can) > 0 || len(cannot) == 0 {
		t.Fatalf("of nothing: %v, %v", can, cannot)
	}
	told := 0
	for _, name := range []string{"MemoryLimit", "PidsLimit", "CPULimit", "DiskLimit", "Pause", "Files", "Memory", "Volumes"} {
		var c Caps
		reflect.ValueOf(&c).Elem().FieldByName(name).SetBool(true)
		has, lacks := c.Abilities()
		if len(has) == 1 && len(lacks) == len(cannot)-1 && !slices.Contains(lacks, has[0]) {
			told++
		} else {
			t.Errorf("%s: %v, %v", name, has, lacks)
		}
	}
	if told != len(cannot) {
		t.Errorf("%d abilities, %d are told", told, len(cannot))
	}
}
