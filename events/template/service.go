package template

import (
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Service is a server that a sandbox of a template can run, for clients that name it instead of
// its port.
type Service struct {
	Name     string `json:"name"`
	Protocol string `json:"protocol"`        // ProtocolTCP or ProtocolHTTP
	Port     int    `json:"port"`            // port on which it listens
	Start    string `json:"start,omitempty"` // shell command that runs it; empty: the template's own start command does
}

// Protocols of services.
const (
	ProtocolTCP  = "tcp"
	ProtocolHTTP = "http"
)

const (
	// MaxServices is the maximum number of services of a template.
	MaxServices = 64
	// MinServicePort is the first port that a service may have.
	MinServicePort  = 1024
	maxPort         = 1<<16 - 1
	maxServiceName  = 64
	maxServiceStart = 4 << 10
)

var serviceName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_-]*$`)

// ParseService parses "name:protocol:port", or "name:protocol:port=command" with the shell command
// that starts the service. Its errors are Invalid.
func ParseService(text string) (Service, error) {
	head, start, _ := strings.Cut(text, "=")
	parts := strings.Split(head, ":")
	if len(parts) != 3 {
		return Service{}, invalid("service %.80q must have the form NAME:PROTOCOL:PORT[=COMMAND]", text)
	}
	port, err := strconv.Atoi(parts[2])
	if err != nil {
		return Service{}, invalid("service %.80q: the port must be a number", text)
	}
	s := Service{Name: parts[0], Protocol: parts[1], Port: port, Start: start}
	return s, s.check()
}

// ParseServicePorts parses the list that images for Backend.AI have in the label
// ai.backend.service-ports, such as "jupyter:http:8081,ssh:tcp:2022". Elements with other protocols
// are ignored: they are not servers.
func ParseServicePorts(label string) ([]Service, error) {
	var out []Service
	for text := range strings.SplitSeq(label, ",") {
		parts := strings.Split(strings.TrimSpace(text), ":")
		if len(parts) == 3 && parts[1] != ProtocolTCP && parts[1] != ProtocolHTTP {
			continue
		}
		s, err := ParseService(strings.Join(parts, ":"))
		if err != nil {
			return nil, err
		}
		out = append(out, s)
	}
	return out, nil
}

func (s *Service) check() error {
	switch {
	case len(s.Name) > maxServiceName || !serviceName.MatchString(s.Name):
		return invalid("service name %.80q must have up to %d letters, digits, underscores and hyphens", s.Name, maxServiceName)
	case s.Protocol != ProtocolTCP && s.Protocol != ProtocolHTTP:
		return invalid("service %q: protocol %.20q must be tcp or http", s.Name, s.Protocol)
	case s.Port < MinServicePort || s.Port > maxPort:
		return invalid("service %q: port %d must be between %d and %d", s.Name, s.Port, MinServicePort, maxPort)
	case len(s.Start) > maxServiceStart || strings.ContainsRune(s.Start, 0):
		return invalid("service %q: the command has more than %d bytes, or a NUL byte", s.Name, maxServiceStart)
	}
	return nil
}

// checkServices checks the services of a manifest.
func checkServices(all []Service) error {
	if len(all) > MaxServices {
		return invalid("it has %d services, the limit is %d", len(all), MaxServices)
	}
	for i := range all {
		if err := all[i].check(); err != nil {
			return err
		}
		if slices.ContainsFunc(all[:i], func(s Service) bool { return s.Name == all[i].Name }) {
			return invalid("it has two services with the name %q", all[i].Name)
		}
	}
	return nil
}
