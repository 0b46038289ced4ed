// Package rulestatus is what operators read about the aggregation rules: which clients each rule
// matches, in what the clients of a key differ, and which problems the rules have. It computes
// all of it from the connected clients when it is asked, and keeps nothing.
//
// The JSON fields of the types are the admin API's: see the documentation of the package admin.
//
// # Concurrency
//
// The package has only functions, which make values that belong to the caller.
package rulestatus
