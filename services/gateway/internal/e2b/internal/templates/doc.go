// Package templates serves E2B's templates and their tags.
package templates
