// Package spelling finds the name that a user meant.
//
// # Concurrency
//
// Its functions have no state.
package spelling
