package templates

import (
	"slices"

	"github.com/spf13/cobra"

	"github.com/millrace/millrace/events/template"
)

// addServices adds the flag for the services of a template.
func addServices(c *cobra.Command, services *[]string) {
	c.Flags().StringArrayVar(services, "service", nil, "server that clients of Backend.AI may request by name, as NAME:PROTOCOL:PORT[=COMMAND]; repeatable (default the image's)")
}

// withServices returns the services with those of the flag, which replace services with their names.
func withServices(all []template.Service, flags []string) ([]template.Service, error) {
	for _, text := range flags {
		s, err := template.ParseService(text)
		if err != nil {
			return nil, err
		}
		all = slices.DeleteFunc(slices.Clone(all), func(o template.Service) bool { return o.Name == s.Name })
		all = append(all, s)
	}
	return all, nil
}
