package session

import (
	_ "embed"
	"encoding/json"
	"slices"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/events/template"
)

// Port is a service of a session, for clients.
type Port struct {
	Name     string `json:"name"`
	Protocol string `json:"protocol"`
	Ports    []int  `json:"ports"`
}

// Names of the services that every session has. They run if the template has their programs.
const (
	Terminal = "ttyd"
	SSH      = "sshd"
)

// KeyFile is the file in the home directory with the private key for the service SSH.
const KeyFile = "id_container"

// preopened is the protocol of a port that the request for a session lists.
const preopened = "preopen"

// sshdScript makes KeyFile if it is missing, and with the argument "serve" runs sshd.
//
//go:embed sshd.sh
var sshdScript string

// builtIn are the services of every session. A service of the template replaces the one with its
// name.
var builtIn = [...]template.Service{
	{Name: SSH, Protocol: template.ProtocolTCP, Port: 2200, Start: "set -- serve\n" + sshdScript},
	{Name: Terminal, Protocol: template.ProtocolHTTP, Port: 7681, Start: "exec ttyd -W -i 127.0.0.1 -p 7681 /bin/sh -c 'exec $(command -v bash || echo sh) -l'"},
}

// root is the user as which the services run that log in other users.
const root = "root"

// KeyCommand returns the shell command that makes KeyFile, and the user as which it runs.
func KeyCommand() (command, user string) { return "set -- key\n" + sshdScript, root }

// User returns the user as which a service runs; empty: the session's.
func User(s *template.Service) string {
	if *s == builtIn[0] {
		return root
	}
	return ""
}

// Services returns the services of a session.
func Services(st *sandbox.State) []template.Service {
	var own []template.Service
	if raw := st.Request.Metadata[metaServices]; raw != "" && json.Unmarshal([]byte(raw), &own) != nil {
		own = nil // the metadata is the client's
	}
	for _, b := range builtIn {
		if !slices.ContainsFunc(own, func(s template.Service) bool { return s.Name == b.Name }) {
			own = append(own, b)
		}
	}
	return own
}

// Service returns the service with a name, and NotFound if the session has none.
func Service(st *sandbox.State, name string) (template.Service, error) {
	for _, s := range Services(st) {
		if s.Name == name {
			return s, nil
		}
	}
	return template.Service{}, kind.Coded(kind.NotFound, "find app", "", AppNotFound, "No such app service provided by the session.")
}

// Ports returns the services of a session as clients see them.
func Ports(st *sandbox.State) []Port {
	all := Services(st)
	out := make([]Port, len(all))
	for i, s := range all {
		out[i] = Port{s.Name, s.Protocol, []int{s.Port}}
	}
	return out
}

// maxPreopen is the maximum number of ports that a request may list.
const maxPreopen = 20

// preopen checks the ports that a request lists.
func (w *Wanted) preopen(ports []int) error {
	if len(ports) > maxPreopen {
		return invalid("preopen_ports: must have at most %d ports", maxPreopen)
	}
	for i, port := range ports {
		taken := slices.Contains(ports[:i], port) || slices.ContainsFunc(builtIn[:], func(s template.Service) bool { return s.Port == port })
		if port < template.MinServicePort || port > 65535 || taken {
			return invalid("preopen_ports: %d must be between %d and 65535, listed once, and not be the port of another service", port, template.MinServicePort)
		}
	}
	w.Preopen = ports
	return nil
}
