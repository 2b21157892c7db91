package app

import (
	"fmt"
	"net/netip"

	"github.com/spf13/pflag"

	"github.com/millrace/millrace/services/gateway"
)

// outbound holds the settings of requests to URLs of tenants, such as persistence backends.
type outbound struct {
	allow []string
	dns   string
}

const (
	outboundAllow = "outbound-allow"
	outboundDNS   = "outbound-dns"
)

func (o *outbound) flags(f *pflag.FlagSet) {
	f.StringSliceVar(&o.allow, outboundAllow, nil, "non-public prefixes that tenants' persistence backends and model endpoints may use, such as 10.1.0.0/16 (default none)")
	f.StringVar(&o.dns, outboundDNS, "", "name server for tenants' persistence backends and model endpoints, as IP:PORT (default this machine's)")
}

func (o *outbound) config() (c gateway.OutboundConfig, err error) {
	if c.Allow, err = prefixes(outboundAllow, o.allow); err != nil || o.dns == "" {
		return c, err
	}
	if _, err := netip.ParseAddrPort(o.dns); err != nil {
		return c, fmt.Errorf("--%s: %w", outboundDNS, err)
	}
	c.DNS = o.dns
	return c, nil
}
