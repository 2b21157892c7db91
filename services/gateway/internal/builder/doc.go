// Package builder runs the builds of templates.
//
// # Ownership
// Every gateway has a Builder. A started build belongs to the gateway that first
// claims it in the build's record and renews that claim while it runs; if the claim
// expires, another gateway takes over. Everything that a build creates has an id
// derived from the build's, so that the successor finds it, even a process that still
// runs: no step runs twice. The record rejects the appends of a gateway that lost its
// claim, which then stops.
//
// A sandbox ends when its step's result is on record or the build is over. A run that ends
// earlier, or fails without recording that, leaves it to the next.
//
// # Layers
// Each step that changes files, RUN or COPY, produces a layer: a sandbox is created from
// the layer below, the step runs in it, and a snapshot of it is taken. A layer is
// identified by the hash of all its inputs. A build reuses an existing layer instead of
// running its step. The last layer and the settings of processes in it are the template;
// see events/template.Built.
//
// The record also contains the base of the build: the template that its name referred to at
// the start, even if the name refers to another one when another gateway takes over. The base is kept
// as long as the build runs, and so is its newest layer until there is another on top.
// snapshots.ClaimLayer makes sure that a layer is either dropped or reused, never both; a build
// that loses this race builds the layer again.
//
// A layer that only one host has, on which that host can create no sandbox, counts as
// missing: its step runs again. A step whose sandbox ran and was lost fails the build.
//
// # Limits
// A layer is on the host that made it; the template is also in the store before the build is
// reported as finished. A build ends after an hour, its log after 50,000 lines. The driver
// limits the number of layers: 50 with namespace.
package builder
