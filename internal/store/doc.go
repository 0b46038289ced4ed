// Package store keeps the last known good on disk: for each key and type what the
// relay may serve after a restart, while no origin is there.
//
// It is a directory of files, one a key and type (format.go says what is in them),
// which only one process uses at a time (lock.go). What is good is the matter of a
// Source; when it is written is the store's. Files are written whole beside the old
// one and take its place, so that whatever happens there is the old or the new.
// Whatever is wrong with a file, it is told, and served as if there were none.
// MaxBytes holds for what stays: a file that is written is there beyond it, until it
// is on the disk; only then go those whose room it needs. A file is removed when its source says that nothing is good,
// or for want of room, and for nothing else: not because a source went.
//
// What must not be on a disk is held back here, whatever the Source says: Secrets
// (P6), what is not to be cached (P63), and what has a TTL, which the origin alone
// can renew (P62). Keys that stand inside of other types, as in a Listener's
// inline certificates, are stored as they are: the files are 0600.
//
// # Concurrency
//
// All methods are safe for concurrent use. Run's goroutine is the only one that
// changes the directory, once it is open; Load reads files meanwhile, which
// are never changed but replaced. A Source is called without any lock. mu is held
// for a few instructions, never across a call of a Source, I/O or a log line: Touch
// takes it where clients acknowledge. Who goes over all files or items lets go of it
// now and then. Of a disk that hangs Run does not wait for the end: what it is about is
// let go with the process (hang.go), as whoever calls Load does for itself. If it hangs at
// the start, the directory is opened later (open.go).
package store
