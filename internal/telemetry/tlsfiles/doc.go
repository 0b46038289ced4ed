// Package tlsfiles is TLS with certificates that stand in files and are renewed
// while the relay runs: those that it shows to clients, origins and operators,
// and the authorities by which it trusts clients and origins.
//
// Before each handshake the files are looked at, which costs some microseconds
// of a handshake's hundreds, and are read anew when they are other files than
// those last read. So a renewed certificate is used from the very next
// connection on, however it was put in its place: written over, renamed, or by
// Kubernetes' swap of the ..data symlink, which the look goes through. A
// watcher of directories would come later than the first connections, and miss
// some of these ways. Run looks now and then as well, so that what is wrong with
// a new file is reported though nobody connects.
//
// Files that cannot be used change nothing: those in force stay, and the fault
// is logged and counted once for each state of the files. That is also how a
// certificate and its key, renewed one after the other, are never mixed.
//
// Connections that are open stay as they are.
//
// # Concurrency
//
// A Source is safe for concurrent use. Run is called at most once.
package tlsfiles
