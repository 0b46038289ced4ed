// Package anytypes links the messages that a resource may have in a google.protobuf.Any. Import it
// for this side effect where resources are converted from or to JSON or YAML.
//
// protojson can convert an Any only if its type is linked. Without the type of its HTTP connection
// manager, a Listener can neither be read from a file nor be shown by a dump. Resources on their
// way from a remote origin to a client are not decoded, and need none of this.
//
// The list (types.go) has the messages that Envoy, gRPC and the usual control planes put into an
// Any. It is not all of Envoy's API, because each package costs start-up time and memory, and most
// others are proxies for rare protocols. A file with a missing type is a fault that names the type
// (P80). Add the type with one line.
//
// # Concurrency
//
// The package has only imports. Their init functions run before main.
package anytypes
