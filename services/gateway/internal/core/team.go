package core

import (
	"strings"

	"github.com/millrace/millrace/events/kind"
)

// Team is what clients call the principal's tenant: it may stand before a slash in
// the names of templates and snapshots, TEAM/NAME.
func (p Principal) Team() string { return p.Tenant }

// ofTeam takes the team off a name, which is empty where none is named.
func ofTeam(name string) (team, rest string) {
	if team, rest, ok := strings.Cut(name, "/"); ok && team != "" {
		return team, rest
	}
	return "", name
}

// NewName is a name that the principal puts on what is his, without his team before
// it. Invalid with another one.
func (p Principal) NewName(name string) (string, error) {
	team, rest := ofTeam(name)
	if team != "" && team != p.Team() {
		return "", kind.Newf(kind.Invalid, "name", "", "the name '%.200s' is in the team '%.63s', and yours is '%s'", name, team, p.Team())
	}
	return rest, nil
}

// OwnedName is the name of something of the principal's, without his team before it;
// false with another one: it cannot be his.
func (p Principal) OwnedName(name string) (string, bool) {
	team, rest := ofTeam(name)
	return rest, team == "" || team == p.Team() && rest != ""
}
