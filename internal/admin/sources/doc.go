// Package sources is what operators read about the members of a cluster, and the problems of origins and
// of the keys at them.
//
// The JSON fields of the types are the admin API's: see the documentation of the package admin.
//
// # Concurrency
//
// The package has only functions, which make values that belong to the caller.
package sources
