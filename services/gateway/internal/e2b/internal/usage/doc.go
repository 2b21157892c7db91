// Package usage serves E2B's metrics of sandboxes: how much CPU, memory and disk they use.
package usage
