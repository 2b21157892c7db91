package wire

import (
	"cmp"

	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/services/gateway/internal/core"
)

// EnvdVersion determines which data plane features SDKs use.
const EnvdVersion = "0.6.13"

// TemplateID returns the id of a sandbox's template in the API.
func TemplateID(st *sandbox.State) string { return cmp.Or(st.Request.Built, st.Request.Template) }

// IsWord reports whether s consists of letters, digits, - and _, and is not empty.
func IsWord(s string) bool {
	ok := s != ""
	for i := 0; ok && i < len(s); i++ {
		c := s[i]
		ok = c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '-' || c == '_'
	}
	return ok
}

// OwnTeam checks the team that a request names: Invalid unless it is the caller's own.
func OwnTeam(p core.Principal, team string) error {
	if team != "" && team != p.Team() {
		return Invalid("teamID '%.63s' is not the team of the API key", team)
	}
	return nil
}
