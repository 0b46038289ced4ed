// Package ownership decides which source each key uses, in a cluster of relays. The key's owner asks
// origins. Every other relay with clients of the key, a follower, asks the owner over delta ADS, as
// it would ask an origin. If the owner fails, it asks the next candidate, the second.
//
// A Table is the upstream.Order of all keys (sources.go). It keeps an upstream.Origin for each member
// (members.go), and takes part in serving other members (serve.go): a key that is served to a member
// is asked for at origins only, so that no response goes over two relays.
//
// # Concurrency
//
// All methods of a Table are safe for concurrent use, and none blocks but Run. One mutex protects its
// maps. It is not held while the cluster, the client or the log is called.
package ownership
