// Package xds has the nouns of the xDS protocol, and reads and writes its messages without
// decoding the resources in them. It starts no goroutine, does no I/O, reads no clock and imports
// no other package of the relay.
//
//   - type_table.go: how the types differ: services, REST paths, legacy wildcard, order of sending
//   - key.go, node.go, nameset.go: aggregation keys, client nodes, sets of resource names
//   - client_features.go: what a client's features mean for the format of its resources
//   - request.go: a request of a client, scanned on the wire
//   - response_parse.go, response_faults.go: a response of an origin, split into resources
//   - response_encode.go, response_split.go: the bytes of a response to clients, and its parts
//   - resource.go and resource_*.go: one resource: content, versions, aliases and globs, TTL,
//     errors, and its format on disk
//   - shared_content.go: equal resources of many keys share their memory
//
// An origin's resource passes through as the origin encoded it (P39).
//
// # Concurrency
//
// Resource, ResourceError, NameSet, Key and Node are immutable and may be shared. The content of a
// resource caches the last Resource made of it, in an atomic pointer. A Request, a Response and a
// ParsedResource belong to one goroutine. Functions keep no state. Each says whether its result
// shares memory with its input.
//
// WeakSet and NodeTable are safe for concurrent use. WeakSet calls the function equal under its
// lock, so that function may only compare memory. At most GOMAXPROCS calls of Node.With decode a
// large node at a time; further calls wait.
package xds
