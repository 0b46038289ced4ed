// Package anytypes links the messages that a resource may carry in a
// google.protobuf.Any into the program. Import it for its side effect, where
// resources are read from or written as JSON or YAML.
//
// protojson can read and write an Any only if its type is linked: a Listener
// whose HTTP connection manager is unknown to the program cannot be read from a
// file at all, nor be shown by a dump. On the way from an origin on the network
// to a client nothing is decoded, and none of this is needed.
//
// The list (types.go) has what stock Envoys, gRPC and the usual control planes
// put into an Any, and not all of Envoy's API: each package costs start-up time
// and memory, and most of the rest are proxies for protocols that are rare. A
// resource of a type that is missing here makes its file a fault that names the
// type (P80); adding it is one line.
//
// # Concurrency
//
// There is nothing but imports: all work is done by the packages' init
// functions, before main.
package anytypes
