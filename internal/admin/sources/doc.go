// Package sources is what operators read about the sources of a relay's keys: its origins, and the
// members of its cluster.
//
// The JSON fields of the types are the admin API's: see the documentation of the package admin.
//
// # Concurrency
//
// The package has only functions, which make values that belong to the caller.
package sources
