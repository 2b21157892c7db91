package bootstrap

import "cmp"

// AppKey is the name of the platform's value that has the JSON of the application: its capability
// sets, and their agents with their tools.
const AppKey = "APP_JSON"

// defaultApp is the application of a client that gives none: a single agent with four tools.
const defaultApp = `{"name":"e2a","capability_sets":[{"name":"default","agents":[{"name":"primary","capability_name":"general",` +
	`"capability_description":"general-purpose worker","tools":["read_file","write_file","list_directory","shell_exec"]}]}]}`

// App returns the JSON of an application, which is the default one if it is empty.
func App(app string) string { return cmp.Or(app, defaultApp) }
