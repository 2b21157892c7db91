package sandboxes

import "testing"

func TestMetadataFilter(t *testing.T) {
	tests := []struct {
		in   string
		want map[string]string // nil: an error
	}{
		{"", map[string]string{}},
		{"k=v%2526w", map[string]string{"k": "v&w"}},
		{"a=1&b=2", map[string]string{"a": "1", "b": "2"}},
		{"a%253D=%2520", map[string]string{"a=": " "}},
		{"a=%25zz", nil},
		{"a=%zz", nil},
	}
	for _, tt := range tests {
		got, err := parseMetadata(tt.in)
		if (err != nil) != (tt.want == nil) || len(got) != len(tt.want) {
			t.Errorf("%q: %v, %v; want %v", tt.in, got, err, tt.want)
			continue
		}
		for k, v := range tt.want {
			if got[k] != v {
				t.Errorf("%q: %v, want %v", tt.in, got, tt.want)
			}
		}
	}
}
