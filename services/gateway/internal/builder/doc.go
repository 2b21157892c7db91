// Package builder does the builds of templates.
//
// # Who
// Every gateway has a Builder. A build that was started is done by the one that
// first says so in its record, and says so again while he does; one who falls
// silent is followed by another. All that is done has an id that is made from the
// build's, so that who follows finds what was done, also a process that still
// runs: no step runs twice. Whoever was taken for dead and lives is refused by the
// record, and stops.
//
// A sandbox ends when what was done in it is on record, or when the build is over. Of a
// life that ends before, or fails without having said so, it is left to the next.
//
// # How
// The steps that change files, RUN and COPY, make a layer each: a sandbox that
// begins from the layer before, in which the step is done, and a snapshot of it.
// A layer is known by the sum of all that it was made by. A build that wants one
// that is there takes it and runs nothing. The last layer, and what processes in it
// are to begin with, is the template; see events/template.Built.
//
// What the build stands on is in its record, too: the template that its names meant
// when it was begun, not what they mean to who follows. It stays as long as the build. So is
// the newest layer, which stays until there is another on it: who drops layers that nobody
// uses and who picks one cannot both have it (core.ClaimLayer), and who loses makes it anew.
//
// A layer that one host alone has, which then makes no sandbox on it, is as one that there
// is not: it is made anew, and its step runs again. A step whose sandbox ran and was lost
// fails the build.
//
// # Limits
// A layer is on the host that made it; the template is in the store, too, before the
// build says that it is done. A build ends after an hour, its log after 50,000 lines. A chain of layers is as long as the driver
// lets it be: 50 with namespace.
package builder
