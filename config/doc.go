// Package config is the relay's configuration: the structs of its file, how
// they are loaded, and what is checked before anything starts.
//
// A file is first held against the structs as a tree of YAML nodes (decode.go),
// which finds unknown, duplicate and wrongly typed keys with line and column;
// viper, which lets all of these pass, then layers flags over the environment
// over the file over the defaults (load.go, its only importer); what the parts
// have to say to each other is checked last (validate.go). Every value keeps
// the place that it came from, so that also a fault found later, such as a
// rule that does not compile, points into the file.
//
// Expressions and resource types are text here: this package imports nothing
// internal, and aggregator compiles them.
//
// # Concurrency
//
// A Config and its Places do not change once Load has returned and may be
// read by anyone. Load reads the process's environment and keeps nothing.
package config
