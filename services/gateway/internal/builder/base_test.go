package builder

import (
	"testing"

	"github.com/millrace/millrace/events"
	"github.com/millrace/millrace/events/template"
)

func TestWhatProcessesBeginWithIsInTheSum(t *testing.T) {
	seen := map[string]string{}
	for name, b := range map[string]template.Built{
		"nothing":            {},
		"a variable":         {Env: map[string]string{"A": "1"}},
		"another value":      {Env: map[string]string{"A": "2"}},
		"a user":             {User: "root"},
		"a directory":        {Workdir: "/root"},
		"both":               {User: "root", Workdir: "/root"},
		"a variable of both": {Env: map[string]string{"A": "1"}, User: "root", Workdir: "/root"},
	} {
		b.Base = template.Base
		o, err := (&run{}).onTemplate(t.Context(), &events.Template{Built: &b})
		if err != nil {
			t.Fatal(err)
		}
		if other, ok := seen[o.sum]; ok {
			t.Errorf("a build on a template with %s takes the layers of one with %s", name, other)
		}
		seen[o.sum] = name
	}
	if seen["base "+template.Base] != "nothing" { // layers that were made before keep counting
		t.Error("a template without any has another sum than it had")
	}
}
