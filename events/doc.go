// Package events is the log of what happened to sandboxes and processes. Its
// internal package store holds the connection to NATS.
//
// # Order
// A record holds all events of one process or one sandbox, totally ordered by their Seq,
// which is dense from 1. Nothing is promised about the order of events of different
// records.
//
// # Delivery
// An append is stored once however often it is retried, and never out of order. A [Reader]
// yields each event once, in order, across reconnects, server restarts and leader changes.
// Events that cannot be read are reported as a [process.Gap] or as an error of kind.Gone,
// never skipped silently.
//
// # Reading your writes
// A [View] is folded from the log and lags behind it by microseconds. [View.Sync] waits
// until it has caught up with everything stored before the call.
//
// # Parts
// A [Log] consists of parts that share one connection, and a [View] of parts that share one
// lock. Each part is a type with its own state, and depends only on parts above it:
//
//	store.Conn      requests, appends and feeds, with retries through outages
//	records         records of processes: Writer, Reader, the live tail, search by seq or time
//	blob.Store      object stores: parts of templates, copies of snapshots, files of builds
//	commands        commands to hosts, and their replies
//	tunneling       byte streams to hosts
//	Log             documents, and records of sandboxes and builds
//
//	fold.Progress   how far the view has folded its streams; Sync and waiting
//	fold.Table      documents of one kind
//	processTable    the catalogue of processes, and totals
//	accountTable    keys, signing keys, names of templates
//	hookTable       webhooks and the state of their deliveries
//	lifecycleTable  the lifecycle events of sandboxes
//	View            sandboxes, and what combines the parts
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
//	func (l *Log) PutTeam(ctx context.Context, t *Team) (uint64, error) { return teamDocs.Put(ctx, l.conn, t) }
//	func (v *View) Team(id string) (Team, bool)                         { return v.teams.Get(id) }
//	func (v *View) Teams(keep func(*Team) bool) []Team                  { return v.teams.List(keep) }
//
// newView makes the table, teams: fold.NewTable(p, teamDocs), and adds it to View.documents.
package events
