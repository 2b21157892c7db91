package catalog

import (
	"strings"

	"github.com/millrace/millrace/events/sandbox"
)

func sandboxSubject(tenant string, id sandbox.ID) string { return "sbx." + tenant + "." + string(id) }

func hostSubject(host string) string { return "host." + host }

// tenantOf returns the second token of a subject.
func tenantOf(subject string) (string, bool) {
	parts := strings.Split(subject, ".")
	if len(parts) < 3 {
		return "", false
	}
	return parts[1], true
}

// lastToken returns the last token of a subject.
func lastToken(subject string) string { return subject[strings.LastIndexByte(subject, '.')+1:] }
