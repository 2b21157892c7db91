// Package backup copies the streams of a running installation into sealed files, and restores
// them into an empty one.
//
// # Positions
// Cursors of clients, share links and links between messages contain stream sequences. A restore
// therefore stores each message with its sequence and time: it sends the servers an archive in
// their own format, which it composes from the parts of a backup.
//
// # Parts
// Each backup reads of each stream only what was stored after the previous one, and lists the
// subjects that still have messages, so that a restore does not bring back what was removed. A
// [Manifest] names all parts that a restore needs. It is written last, by a rename: a backup
// without a manifest was cut and does not count.
//
// # Order
// Streams are read one after the other while services write to them. A stream that refers to
// another one is read before it, so that what it refers to is in the backup: cursors before
// records, the catalog before output, names before objects. The sealed data keys are read last;
// if one was replaced meanwhile, the backup starts again.
//
// # Sealing
// A [Key] encrypts and authenticates each file under its own name with AES-256-GCM in segments
// (Tink's streaming AEAD). A changed, cut, renamed or exchanged file is an error, never other data.
// The master key of the installation is not in a backup.
package backup
