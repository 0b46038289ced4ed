// Package filewatch reports when files have changed: written in place, replaced by a rename, or
// reached through a symlink that was swapped, as Kubernetes does.
//
// It watches the directories of the files, and of each symlink on the way to them, with
// fsnotify. It also looks at the files periodically, because an event can be lost and some
// file systems have none.
//
// # Concurrency
//
// Run may be called from several goroutines, each with its own paths. It calls its callback
// from its own goroutine, one call at a time, and returns when its context ends.
package filewatch
