// Package config is the relay's configuration: the structs of its file, how they are loaded, and
// the checks before anything starts.
//
// Loading has three steps. decode.go decodes the file as a tree of YAML nodes, and finds unknown,
// duplicate and wrongly typed keys with line and column. load.go uses viper to put flags over the
// environment over the file over the defaults; viper alone would accept all these faults.
// validate.go checks values against each other. Every value keeps its place, so that a fault that
// is found later, such as a rule that does not compile, also names file and line.
//
// Expressions and resource types are plain text here: this package imports nothing internal, and
// aggregator compiles them.
//
// # Concurrency
//
// A Config and its Places do not change after Load has returned, and are safe for concurrent reads.
// Load reads the process' environment and keeps no state.
package config
