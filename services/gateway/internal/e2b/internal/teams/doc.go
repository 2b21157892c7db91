// Package teams serves E2B's teams, their metrics, and their API keys.
package teams
