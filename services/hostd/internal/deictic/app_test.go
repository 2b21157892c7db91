package deictic

import (
	"fmt"
	"testing"
)

// E-042, E-043.
func TestAgentsOfAnApplication(t *testing.T) {
	tests := []struct{ name, text, want string }{
		{"none", "", "deictic"},
		{"an empty object of a session", `{"capability_sets":{}}`, "deictic"},
		{"an array of sets", `{"capability_sets":[{"agents":[{"name":"a"}]},{"agents":[{"name":"b"},{"name":"a"}]}]}`, "a b a-3"},
		{"an object of sets", `{"capability_sets":{"y":{"agents":[{"name":"b"}]},"x":{"agents":[{"name":"a"}]}}}`, "a b"},
		{"a scope", `{"set_id":"y","capability_sets":{"y":{"agents":[{"name":"b"}]},"x":{"agents":[{"name":"a"}]}}}`, "b"},
		{"a scope that does not exist", `{"set_id":"default","capability_sets":{"x":{"agents":[{}]}}}`, "agent"},
		{"not valid", `{"capability_sets":7}`, "app_json is not valid"},
		{"no array of agents", `{"capability_sets":{"x":1}}`, "app_json is not valid"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			all, err := parseApp(tt.text)
			got := ""
			for _, s := range all {
				got += " " + s.Name
			}
			if err != nil {
				got = " " + err.Error()
			}
			if got != " "+tt.want {
				t.Errorf("got %q", got)
			}
		})
	}
	if tools, unknown := (&toolbox{}).tools(nil); len(tools) != 4 || unknown != nil {
		t.Errorf("the default has the tools %v", fmt.Sprint(tools))
	}
}
