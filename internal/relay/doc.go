// Package relay joins the parts of a relay: origins, keys, the store, the server for clients, the cluster
// and the admin API. It alone knows every part. It also follows the configuration file, and applies what
// can change without a restart.
//
// # Concurrency
//
// New starts nothing. Run starts the parts and returns when all have ended. Follow and LogsTo are called
// before Run, the other methods at any time. The configuration in force is an immutable value, which a
// reload replaces. A lock makes reloads follow each other.
package relay
