package core

import (
	"strings"

	"github.com/millrace/millrace/events/kind"
)

// DefaultTag is the tag of a name without a tag.
const DefaultTag = "default"

// Tagged returns a snapshot's name with its tag.
func Tagged(name string) string {
	if strings.Contains(name, ":") {
		return name
	}
	return name + ":" + DefaultTag
}

// Team returns the team name of the principal's tenant, which may precede the names of
// templates and snapshots: TEAM/NAME.
func (p Principal) Team() string { return p.Tenant }

// SplitTeam splits a name into its team, which may be empty, and the rest.
func SplitTeam(name string) (team, rest string) {
	if team, rest, ok := strings.Cut(name, "/"); ok && team != "" {
		return team, rest
	}
	return "", name
}

// NewName returns a name without the principal's team. It returns Invalid for another team.
func (p Principal) NewName(name string) (string, error) {
	team, rest := SplitTeam(name)
	if team != "" && team != p.Team() {
		return "", kind.Newf(kind.Invalid, "name", "", "the name '%.200s' is in the team '%.63s', and yours is '%s'", name, team, p.Team())
	}
	return rest, nil
}

// OwnedName returns a name without the principal's team, and false for another team.
func (p Principal) OwnedName(name string) (string, bool) {
	team, rest := SplitTeam(name)
	return rest, team == "" || team == p.Team() && rest != ""
}
