package command

import "testing"

func TestDataDir(t *testing.T) {
	tests := []struct {
		name string
		env  map[string]string
		want string
	}{
		{"given", map[string]string{"MILLRACE_DATA": "/d", "HOME": "/h"}, "/d"},
		{"XDG", map[string]string{"XDG_STATE_HOME": "/x", "HOME": "/h"}, "/x/millrace"},
		{"a relative XDG is ignored", map[string]string{"XDG_STATE_HOME": "x", "HOME": "/h"}, "/h/.local/state/millrace"},
		{"home", map[string]string{"HOME": "/h"}, "/h/.local/state/millrace"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got, err := DataDir(func(k string) string { return tt.env[k] }); got != tt.want || err != nil {
				t.Errorf("DataDir = %s, %v; want %s", got, err, tt.want)
			}
		})
	}
}
