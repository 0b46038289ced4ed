// Package filewatch says when files have changed, in whichever way: written in place,
// replaced by a rename, or by the swap of a symlink on the way to them, as
// Kubernetes does it.
//
// The directories of the files, and those of the symlinks that lead to them, are
// watched by inotify. An event says only when to look: whether anything changed is
// seen by the files themselves, their size, time and place on the disk, and now
// and then without an event, since not every file system has any.
//
// # Concurrency
//
// New starts nothing; Run belongs to one goroutine, which calls paths and changed.
// Look may be called from anywhere. Trail is a function of the file system.
package filewatch
