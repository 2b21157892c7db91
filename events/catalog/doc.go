// Package catalog has what the services know of each other's work: sandboxes, processes,
// hosts, keys, templates, snapshots, volumes, secrets, builds and webhooks.
//
// [Documents] writes it to the log, and reads what is not kept in memory. A [View] is all of
// it, folded into memory and kept up to date. [View.Sync] waits until the view has caught up
// with everything stored before the call.
//
// # Parts of a view
// The parts share one lock, that of their [fold.Progress]:
//
//	processTable    the catalog of processes, and totals (events/internal/proctable)
//	accountTable    keys, signing keys, names of templates (account.go)
//	hookTable       webhooks and the state of their deliveries (hooks.go)
//	lifecycleTable  the lifecycle events of sandboxes (lifecycle.go)
//	View            sandboxes, the other documents, and what combines the parts (view.go)
//
// # Documents
// A document is a value that is stored under one subject and replaced under
// compare-and-append: a snapshot, a volume, a secret, a host's lease. Keys, signing keys,
// template tags and builds are documents that a function of their own folds from events. The
// type fold.Document describes a kind. Its methods put, create and read documents in the log; a
// fold.Table holds them in a view and gets, lists, awaits, changes and expires them. Views
// follow the stream of each table in View.documents and drop what is over; SweepRecords
// removes it from the log.
//
// A new kind needs a message in schema/event/v1 and a stream: a name, a subject and settings
// in internal/streams. The rest is this:
//
//	var teamDocs = &fold.Document[string, Team]{
//		Name: "team", Stream: streams.Teams, Notify: true,
//		Subject: func(t *Team) string { return teamSubject(t.ID) },
//		Key:     func(t *Team) string { return t.ID },
//		Compare: func(a, b Team) int { return strings.Compare(a.Name, b.Name) },
//		Rev:     func(t *Team) uint64 { return t.Rev },
//		Encode: func(t *Team) proto.Message {
//			return &pb.Team{Id: t.ID, Name: t.Name, Deleted: t.Deleted}
//		},
//		Decode: func(m store.Message) (Team, error) {
//			var b pb.Team
//			err := proto.Unmarshal(m.Data, &b)
//			return Team{ID: b.Id, Name: b.Name, Deleted: b.Deleted, Rev: m.Seq, Changed: m.Time}, err
//		},
//		Over: func(t *Team) (time.Time, bool) { return t.Changed, t.Deleted },
//		Keep: deletedAge + viewAge,
//		Find: lastToken,
//	}
//
//	func (d *Documents) PutTeam(ctx context.Context, t *Team) (uint64, error) { return teamDocs.Put(ctx, d.conn, t) }
//	func (v *View) Team(id string) (Team, bool)                         { return v.teams.Get(id) }
//	func (v *View) Teams(keep func(*Team) bool) []Team                  { return v.teams.List(keep) }
//
// newView makes the table, teams: fold.NewTable(p, teamDocs), and adds it to View.documents.
package catalog
