package streams

import (
	"slices"
	"testing"
)

func TestParseInfo(t *testing.T) {
	tests := []struct {
		name, answer, leader string
		want                 Usage
		ok                   bool
	}{
		{"a lone server", `{"config":{"max_bytes":100},"state":{"messages":3,"bytes":40}}`, "", Usage{Bytes: 40, MaxBytes: 100, Messages: 3}, true},
		{"no limit", `{"config":{"max_bytes":-1},"state":{"bytes":40}}`, "", Usage{Bytes: 40}, true},
		{
			"a cluster with a replica that is behind and one that is offline",
			`{"cluster":{"leader":"a","replicas":[{"name":"b","current":false,"lag":7},{"name":"c","current":true,"offline":true,"lag":2},{"name":"d","current":true}]}}`,
			"a", Usage{Replicas: 3, Behind: 2, Lag: 7}, true,
		},
		{"an error", `{"error":{"code":404,"description":"stream not found"}}`, "", Usage{}, false},
		{"no JSON", `-`, "", Usage{}, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			leader, got, err := ParseInfo([]byte(tt.answer))
			if leader != tt.leader || got != tt.want || (err == nil) != tt.ok {
				t.Errorf("%q, %+v, %v; want %q, %+v, ok %v", leader, got, err, tt.leader, tt.want, tt.ok)
			}
		})
	}
}

func TestParseObjectStores(t *testing.T) {
	tests := []struct {
		name, answer string
		want         []string
		ok           bool
	}{
		{"sorted, without others", `{"total":3,"streams":["OBJ_views","SBX","OBJ_templates"]}`, []string{"OBJ_templates", "OBJ_views"}, true},
		{"none", `{"total":0,"streams":null}`, nil, true},
		{"an error", `{"error":{"code":503,"description":"no leader"}}`, nil, false},
		{"no JSON", `-`, nil, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := ParseObjectStores([]byte(tt.answer))
			if !slices.Equal(got, tt.want) || (err == nil) != tt.ok {
				t.Errorf("%q, %v; want %q, ok %v", got, err, tt.want, tt.ok)
			}
		})
	}
}
