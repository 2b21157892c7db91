// Package command holds what all client commands share: the configuration that they get
// from the program around them, the flags that each of them has ([Env]), the checks of
// arguments and flags, and tables and JSON as output.
//
// # Ids
// A unique prefix stands for an id of a sandbox, process, snapshot, template or key
// ([ByID]). The lists are read only if the id as given does not exist. Hosts have names,
// not ids.
package command
