package app

import (
	"errors"
	"fmt"
	"math"
	"net/url"
	"os"
	"strings"

	"github.com/spf13/pflag"

	"github.com/millrace/millrace/events/usage"
	"github.com/millrace/millrace/services/gateway"
)

// billing holds the settings of prices.
type billing struct {
	cpuHour float64 // cents
	atZero  string

	stripeKey, stripeWebhookKey, stripeAPI, stripeReturn string // the keys are files
}

// defaultCPUHour is the default of --price-cpu-hour, in cents.
const defaultCPUHour = 5

// The values of --at-zero.
const (
	allowAtZero  = "allow"
	refuseAtZero = "refuse"
)

func (b *billing) flags(f *pflag.FlagSet) {
	f.Float64Var(&b.cpuHour, "price-cpu-hour", defaultCPUHour, "price of an hour of CPU time in cents, as credits of e2a; 0: free")
	f.StringVar(&b.atZero, "at-zero", allowAtZero, "allow or refuse new sandboxes and sessions of a tenant of e2a without credits")
	f.StringVar(&b.stripeKey, "stripe-key", "", "file of the secret key of a Stripe account, to sell credits (default none: credits cannot be bought)")
	f.StringVar(&b.stripeWebhookKey, "stripe-webhook-key", "", "file of the signing secret of the webhook, /v1/billing/webhook (required with --stripe-key)")
	f.StringVar(&b.stripeReturn, "stripe-return", "", "URL of the page that users return to from a payment (required with --stripe-key)")
	f.StringVar(&b.stripeAPI, "stripe-api", "https://api.stripe.com", "address of Stripe's API")
}

func (b *billing) config() (c gateway.BillingConfig, err error) {
	const parts = 1000 // of a cent
	if math.IsNaN(b.cpuHour) || b.cpuHour < 0 || b.cpuHour > usage.MaxCPUHour/parts {
		return c, fmt.Errorf("--price-cpu-hour: %v must be from 0 to %d", b.cpuHour, usage.MaxCPUHour/parts)
	}
	c.Price.CPUHour = int64(math.Round(b.cpuHour * parts))
	switch b.atZero {
	case allowAtZero:
	case refuseAtZero:
		c.Refuse = true
	default:
		return c, fmt.Errorf("--at-zero: %q must be %s or %s", b.atZero, allowAtZero, refuseAtZero)
	}
	if b.stripeKey == "" {
		if c.Refuse {
			return c, errors.New("--stripe-key is required with --at-zero refuse")
		}
		return c, nil
	}
	if b.stripeWebhookKey == "" || b.stripeReturn == "" {
		return c, errors.New("--stripe-webhook-key and --stripe-return are required with --stripe-key")
	}
	for flag, value := range map[string]string{"--stripe-return": b.stripeReturn, "--stripe-api": b.stripeAPI} {
		if u, err := url.Parse(value); err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Host == "" {
			return c, fmt.Errorf("%s: must be a URL with http or https and a host", flag)
		}
	}
	c.Stripe.API, c.Stripe.Return = b.stripeAPI, b.stripeReturn
	if c.Stripe.Key, err = secretOf("--stripe-key", b.stripeKey); err != nil {
		return c, err
	}
	c.Stripe.WebhookKey, err = secretOf("--stripe-webhook-key", b.stripeWebhookKey)
	return c, err
}

// secretOf reads a secret of one line from a file. Its errors do not contain it.
func secretOf(flag, file string) (string, error) {
	raw, err := os.ReadFile(file)
	if err != nil {
		return "", fmt.Errorf("%s: %w", flag, err)
	}
	s := strings.TrimSpace(string(raw))
	if s == "" || strings.ContainsFunc(s, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return "", fmt.Errorf("%s: %s must have one line of printable characters", flag, file)
	}
	return s, nil
}
