package main

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

// version is set by the linker: -X main.version=v1.2.3.
var version = "dev"

func newVersionCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "version",
		Short:   "Print the version, the revision and the Go release",
		Example: "  relay version\n  relay version -o json",
		Args:    cobra.NoArgs,
	}
	format := addOutputFlag(cmd, formatText, formatJSON, formatYAML)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		b := build()
		if *format != formatText {
			return printData(cmd.OutOrStdout(), *format, b)
		}
		fmt.Fprintln(cmd.OutOrStdout(), b)
		return nil
	}
	return cmd
}

// buildInfo describes the running binary.
type buildInfo struct {
	Version  string `json:"version" yaml:"version"`
	Revision string `json:"revision,omitempty" yaml:"revision,omitempty"`
	Time     string `json:"time,omitempty" yaml:"time,omitempty"` // of the revision
	Modified bool   `json:"modified,omitempty" yaml:"modified,omitempty"`
	Go       string `json:"go" yaml:"go"`
	Platform string `json:"platform" yaml:"platform"`
}

// build reads what the linker and the Go command recorded in the binary.
func build() buildInfo {
	b := buildInfo{Version: version, Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
	if info, ok := debug.ReadBuildInfo(); ok {
		if b.Version == "" && info.Main.Version != "(devel)" {
			b.Version = info.Main.Version
		}
		for _, s := range info.Settings {
			switch s.Key {
			case "vcs.revision":
				b.Revision = s.Value
			case "vcs.time":
				b.Time = s.Value
			case "vcs.modified":
				b.Modified = s.Value == "true"
			}
		}
	}
	if b.Version == "" {
		b.Version = "dev"
	}
	return b
}

func (b buildInfo) String() string {
	s := "relay " + b.Version
	if b.Revision != "" {
		s += ", revision " + b.Revision[:min(12, len(b.Revision))]
		if b.Modified {
			s += " with changes"
		}
	}
	return s + ", " + b.Go + ", " + b.Platform
}
