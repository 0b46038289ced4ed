// Package compare shows resources to operators, and in what two of them differ, without their secrets.
//
// The JSON fields of the types are the admin API's: see the documentation of the package admin.
//
// # Concurrency
//
// The package has only functions, which make values that belong to the caller.
package compare
