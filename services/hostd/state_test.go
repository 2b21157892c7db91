package hostd

import (
	"testing"

	"github.com/millrace/millrace/events/kind"
)

func TestConfig(t *testing.T) {
	for _, cfg := range []Config{{}, {Name: "h", DataDir: "d"}} {
		if err := setDefaults(&cfg); !kind.Is(err, kind.Invalid) {
			t.Errorf("%+v: %v", cfg, err)
		}
	}
}
