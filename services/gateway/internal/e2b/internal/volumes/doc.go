// Package volumes serves E2B's volumes: their names and tokens, not their files.
package volumes
