// Package filesource is a directory as an origin (P80). The origin's resources are the
// DiscoveryResponses in its files.
//
// A Directory follows the files and reads them once for all keys (directory.go, parse.go).
// Directory.Serve serves one key (session.go). It reaches the key through a Stream, which the caller
// implements.
//
// # Concurrency
//
// Constructors start nothing. Directory.Run follows the files until its context ends. The other
// methods of a Directory may be called from any goroutine.
package filesource
