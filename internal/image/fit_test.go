package image

import (
	"archive/tar"
	"strings"
	"testing"

	"github.com/millrace/millrace/events/kind"
)

// The image's user is added to /etc/passwd: processes of an unknown user would be root.
func TestImageUserIsAdded(t *testing.T) {
	const root, app = "root:x:0:0::/root:/bin/sh\n", "app:x:500:500::/:/bin/sh\n"
	for what, tt := range map[string]struct {
		user, group string
		line        string // added line
		ok          bool
	}{
		"no user":               {"", "", "", true},
		"the default user":      {"user", "", "", true},
		"root":                  {"root", "", "", true},
		"root's number":         {"0", "0", "", true},
		"a user of the image":   {"app", "", "", true},
		"the user's number":     {"500", "7", "", true},
		"a number":              {"4321", "", "u4321:*:4321:0::/:/bin/sh\n", true},
		"a number with a group": {"4321", "77", "u4321:*:4321:77::/:/bin/sh\n", true},
		"a number with a name":  {"4321", "staff", "u4321:*:4321:0::/:/bin/sh\n", true},
		"the highest number":    {"65535", "", "u65535:*:65535:0::/:/bin/sh\n", true},
		"a number too high":     {"65536", "", "", false},
		"a group too high":      {"4321", "65536", "", false},
		"an unknown name":       {"ghost", "", "", false},
		"an incomplete line":    {"half", "", "", false},
	} {
		t.Run(what, func(t *testing.T) {
			users := root + app + "half:x:8:8\n"
			img := imageOf(t, []tar.Header{file("etc/passwd", users)})
			img.User, img.Group = tt.user, tt.group
			got, m, err := packed(t, img, Options{})
			if !tt.ok {
				if !kind.Is(err, kind.Invalid) {
					t.Errorf("got %v; want an error of kind invalid", err)
				}
				return
			}
			if err != nil || m.User != tt.user {
				t.Fatalf("user %q, %v", m.User, err)
			}
			if want := users + "user:*:1000:1000:user:/home/user:/bin/sh\n" + tt.line; got["etc/passwd"] != want {
				t.Errorf("got %q, want %q", got["etc/passwd"], want)
			}
		})
	}
	img := imageOf(t, nil)
	img.User = "root"
	if got, _, err := packed(t, img, Options{}); err != nil || !strings.HasPrefix(got["etc/passwd"], "root:") {
		t.Errorf("an image without users: %q, %v", got["etc/passwd"], err)
	}
}
