package driver

import (
	"reflect"
	"slices"
	"testing"
)

// Each ability is reported, whether a driver has it or not.
func TestAbilitiesReportsEachCap(t *testing.T) {
	can, cannot := (&Caps{}).Abilities()
	if len(can) > 0 || len(cannot) == 0 {
		t.Fatalf("Abilities of no caps: %v, %v", can, cannot)
	}
	reported := 0
	for _, name := range []string{"MemoryLimit", "PidsLimit", "CPULimit", "DiskLimit", "Pause", "Files", "Memory", "Volumes"} {
		var c Caps
		reflect.ValueOf(&c).Elem().FieldByName(name).SetBool(true)
		has, lacks := c.Abilities()
		if len(has) == 1 && len(lacks) == len(cannot)-1 && !slices.Contains(lacks, has[0]) {
			reported++
		} else {
			t.Errorf("%s: %v, %v", name, has, lacks)
		}
	}
	if reported != len(cannot) {
		t.Errorf("%d abilities reported, want %d", reported, len(cannot))
	}
}
