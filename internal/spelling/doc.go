// Package spelling has words for users: the name that a user probably meant, and a noun with its
// number.
//
// # Concurrency
//
// Its functions have no state.
package spelling
