// Package catalogue is e2a's catalogue of templates: the programs of agents that a session can have,
// each with its sets of tools. [Find] and [App.Set] answer whether POST /v1/sessions accepts a
// program, so that every entry of the list is accepted.
package catalogue
