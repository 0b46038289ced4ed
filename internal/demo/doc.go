// Package demo lets people try a relay: with an origin of files, a relay and clients in one process, or
// with simulated clients for a relay that runs.
//
// # Concurrency
//
// Run and Simulation.Run return when what they started has ended. The simulated clients call the hooks
// of this package on their own goroutines. These hooks hold a lock.
package demo
