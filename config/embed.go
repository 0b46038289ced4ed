package config

import "embed"

// Demo has config/demo, the files of `relay demo`'s origin, so that the demo needs no
// file beside the binary.
//
//go:embed demo
var Demo embed.FS
