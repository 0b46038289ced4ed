package config

import "embed"

// Demo is config/demo: the filesystem origin of `relay demo`, which needs no
// file beside the binary.
//
//go:embed demo
var Demo embed.FS
