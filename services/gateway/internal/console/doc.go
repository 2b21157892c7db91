// Package console serves the web console: one page, its scripts and its styles, all
// embedded in the binary.
//
// # Security
// The page loads nothing from another origin and its policy forbids that. Its scripts
// authenticate with an API key that the user enters; the files themselves are public.
//
// # Caching
// Each file has an ETag of its content. Browsers check it on each visit, so that a page
// never mixes files of two versions.
package console
